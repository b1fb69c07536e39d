"""Consumes at one slice for an inbox: the session, its deliveries, its acks. It is not the session that carries
requests: a full inbox stops reading. Not here: attached queues (attachments.py), what comes a second time
(core/repeat_rules.py).
Long because acks, nacks and what is given back follow the same rules for eras and lives, which stand side by side.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from shoal.ack_doubts import AckDoubts
from shoal.ack_sender import AckSender
from shoal.attachments import Attachments
from shoal.consumer import Consumer
from shoal.core.ack_errors import AckErrors
from shoal.core.acks import LIFE_LEFT, LIFE_OVER, AckConsumer, Acked, without_consumers
from shoal.core.delivered import chunk_of
from shoal.core.frames import Frame
from shoal.core.handled_ranges import HandledRange
from shoal.core.offset_ranges import Ranges
from shoal.core.recent_bytes import RecentBytes
from shoal.core.refusals import acks_came_late, acks_late, deadline_exceeded
from shoal.core.repeat_rules import DropRepeats, HandOutRepeats, RepeatRule
from shoal.core.repeats import Told
from shoal.core.returning import NackPlace
from shoal.dropped_queues import DroppedQueues
from shoal.eras import Era
from shoal.gaps import GapNews
from shoal.held_back import Came, HeldBack
from shoal.inbox_delivery import InboxDelivery
from shoal.late_asking import LateAsking
from shoal.limits import LATE_ACKS_WAIT_S, QUEUES_TOLD_MAX
from shoal.live_messages import LiveDelivery
from shoal.messages import Delivery, PartLife
from shoal.nack_sender import NackSender
from shoal.queue_names import QueueNames
from shoal.routing import Routing
from shoal.stopped_handles import StoppedHandles
from shoal_contract.errors import OutcomeUnknown, ShoalError, Unavailable, from_wire
from shoal_contract.names import show
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.tasks import Tasks

_log = logging.getLogger("shoal")

OnDelivery = Callable[[Delivery | GapNews], Awaitable[None]]


class InboxSlice(Consumer):
    """Is an inbox at one slice. `queues`: handle -> queue, the inbox's own dictionary, which only it changes."""

    def __init__(
        self,
        slice_name: str,
        routing: Routing,
        queues: Mapping[int, bytes],
        window: wire.Attach,
        buffer_bytes: int,
        on_delivery: OnDelivery,
        drop_repeats: bool,
        on_failure: Callable[[], None],
        dropped: DroppedQueues,
        on_ended: Callable[[str, int, ShoalError], None],
        on_ack_timeouts: Callable[[Mapping[int, int]], None],
    ) -> None:
        self.error: ShoalError | None = None
        """The error with which this slice refuses the inbox; repeating would not help."""
        self.last_handle = 0
        """A handle of the last delivery; 0: none came yet."""
        self.recent = RecentBytes()
        self.closed = False
        self.draining = False
        """True if what is new is given back."""
        self._dropped = dropped
        self._on_ack_timeouts = on_ack_timeouts
        self._on_ended = on_ended
        self._telling = routing.telling
        self._loop = routing.map.loop
        self._queues = queues
        self._on_delivery = on_delivery
        self._on_failure = on_failure
        self._ended_in: dict[int, int] = {}
        """Handle -> number of the era that began when a life of its queue ended."""
        self._perhaps_from: dict[int, int] = {}
        """Handle -> number of the first era of the life that was taken for ended last, though it may go on."""
        self._any_detached = False
        self._ack_errors = AckErrors()
        self._era = Era(self, 0, 0)
        self.session = routing.inbox_session(slice_name, self, buffer_bytes)
        self.nacks = NackSender(self.session, self._acks_refused, self._resets_seen)
        self._stopped = StoppedHandles(self.nacks)
        self._timed: set[int] = set()
        """Handles whose queue has an ack timeout here: an ack may come too late to have an effect."""
        told = (self.refused, self._lives_ended, self._learn_ack_timeouts, self._attached_again)
        self.attachments = Attachments(slice_name, queues, window, self.session.send, *told)
        self.held = HeldBack(self.attachments)
        self.acks = AckSender(
            self.session,
            self._acks_refused,
            lambda blocks: self.rule.answered(blocks),
            True,
            self._may_be_late,
            self._acks_late,
            self._resets_seen,
        )
        pending = self.acks.pending_acks
        self.rule: RepeatRule = DropRepeats(pending) if drop_repeats else HandOutRepeats(pending)
        self.repeats = self.rule.repeats
        self.doubts: AckDoubts | None = None
        self._late: LateAsking | None = None
        if self.repeats is not None:
            self._late = LateAsking(self.repeats, self.attachments, self.session.send)
            self.doubts = AckDoubts(slice_name, self.repeats, self.attachments, self.nacks, self.session.send)

    def leave(self, handles: Sequence[int]) -> Sequence[asyncio.Future[wire.Answer]]:
        """Detaches handles that were stopped, without waiting. Returns the answers to come. Done again, it does
        nothing."""
        handles = self._stopped.leave(handles)
        self.acks.send()
        self.nacks.send()
        for handle in handles:
            self._ended_in.pop(handle, None)
            self._perhaps_from.pop(handle, None)
        self._timed.difference_update(handles)
        self.rule.left(handles)
        answers = self.attachments.leave(handles)
        self._stopped.detached(handles, answers)
        self.attachments.changed.set()
        return answers

    def take_out(self, queues: Mapping[int, bytes]) -> None:
        """Stops handles that left the inbox, with their queues. `detach`, or `leave`, is to follow."""
        if self.repeats is not None:  # Whether these have their queue's former life will not be told any more.
            self.repeats.forget_doubts({handle for handle in queues if not self.attachments.has(handle)})
        self.attachments.give_up(queues)
        self._stopped.leaving.update(queues)
        self.stop(list(queues))

    def stop(self, handles: Sequence[int]) -> None:
        """Asks the slice for nothing more for these handles, so that what is given back goes to other consumers."""
        self._any_detached = True
        self._stopped.add(handles, self._era.stream)

    def stop_all(self) -> None:
        """Asks for nothing more; what still comes is given back."""
        self.draining = True
        self.stop(list(self._queues))

    async def detach(
        self, handles: Sequence[int], deadline: float, hurry: asyncio.Event, on_sent: Callable[[str], None]
    ) -> None:
        """Detaches after the acks given so far, and after what came before the stop took effect was given back, or as
        soon as `hurry` is set. `on_sent`: called with the slice's name when the detach is on its way."""
        try:
            async with asyncio.timeout_at(deadline):
                try:
                    await self._given_back(hurry)
                finally:
                    answers = self.leave(handles)
                    on_sent(self.session.slice_name)
                for answer in answers:
                    await answer
        except TimeoutError:
            raise deadline_exceeded(f"detach at slice {self.session.slice_name}") from None

    async def _given_back(self, hurry: asyncio.Event) -> None:
        """Waits until what came before a stop took effect was given back, and all acks are on their way; no longer once
        `hurry` is set."""
        async with Tasks("detach") as tasks:
            waits = tasks.start("give back", self._give_back_first(), awaited=True)
            await asyncio.wait((waits, tasks.start("hurry", hurry.wait())), return_when=asyncio.FIRST_COMPLETED)
            if waits.done():
                waits.result()

    async def _give_back_first(self) -> None:
        await self.nacks.flush()  # With the answer to the stop, what came before it was given back.
        await self.nacks.flush()
        await self.acks.sent()

    # Calls from the session.

    def first_frames(self) -> Sequence[Frame]:
        """Begins an era, and returns the frames that attach all queues, and stop those that were stopped."""
        self._era = Era(self, self._era.number + 1, self.session.stream_number)
        frames = [*self.attachments.begin_stream(), *self._stopped.first_frames(self._queues)]
        self._ask_soon()
        return frames

    def _ask_soon(self) -> None:
        """Asks soon what became of acks of which that is not known."""
        if self.doubts is not None and self._late is not None:
            self.doubts.ask_soon()
            self._late.ask_soon()

    def stream_ended(self) -> None:
        """Ends the era: what was unacked comes again on the next stream."""
        self._era = Era(self, self._era.number + 1, 0)
        self.held.stream_ended()
        self.nacks.stream_ended()
        lost = self.acks.stream_ended()
        left = {one for block in lost for one in block.consumers if one not in self._queues}
        # Of a queue that left the inbox, nothing can be asked any more.
        self.rule.stream_ended(without_consumers(lost, left) if left else lost)
        self.attachments.end_stream()
        if self.doubts is not None and self._late is not None:
            self.doubts.asking.rest()
            self._late.asking.rest()

    def refused(self, error: ShoalError) -> None:
        """Keeps the error, which the calls that wait and the next `anext` raise."""
        self.error = error
        self.attachments.fail(error)
        self._on_failure()

    @property
    def holding(self) -> bool:
        """Returns whether deliveries wait until the life of their queue is known."""
        return bool(self.held)

    async def delivered(self, response: wire.SessionResponse) -> None:
        """Hands out what is new, in order. Waits while the inbox is full."""
        if response.resets:
            self._resets_told(response.resets)
        if response.ack_timeouts.handles:
            told = self.attachments.parts_came(response.ack_timeouts)
            self._dropped.exist(self.session.slice_name, told)
        for ended in response.ended:
            self._queue_ended(ended.handle, from_wire(ended.error))
        came: Sequence[Came] = response.deliveries
        if response.gaps:
            came = [*(GapNews(gap, self._named(gap.handles)) for gap in response.gaps), *came]
        for item in self.held.passed(came):
            if isinstance(item, wire.Delivery):
                await self._deliver(item)
            elif item.handles:
                await self._on_delivery(item)

    def _resets_told(self, handles: Sequence[int]) -> None:
        """Takes in that lives ended. What is acked or given back of them is on its way by then, or is not sent."""
        self.nacks.send()
        leaving = [handle for handle in handles if handle not in self._queues]
        if leaving:
            self.acks.forget(leaving)
        self.held.forget(handles)
        self.attachments.lives_ended(handles)

    def _attached_again(self, handles: Sequence[int]) -> None:
        """Takes in that the slice is asked once more: what it delivered for the attach that it refused comes again."""
        self.held.forget(handles)
        self._stopped.attached_again(handles)
        self._ask_soon()

    def _resets_seen(self) -> int:
        return self.attachments.resets_seen

    def _named(self, handles: Sequence[int]) -> dict[int, bytes]:
        names = {handle: self._queues.get(handle) or self._stopped.leaving.get(handle, b"") for handle in handles}
        return {handle: name for handle, name in names.items() if name}

    def _queue_ended(self, handle: int, error: ShoalError) -> None:
        """Takes in that another session consumes an exclusive queue here: what this one has of it is given again."""
        if handle in self._queues:
            self.attachments.ended(handle)
            self.rule.taken_over([handle])
            self._on_ended(self.session.slice_name, handle, error)

    async def _deliver(self, item: wire.Delivery) -> None:
        chunk = chunk_of(item)
        handles: Sequence[int] = list(item.handles)
        if self._any_detached and not all(handle in self._queues for handle in handles):
            gone = [handle for handle in handles if handle not in self._queues]
            handles = [handle for handle in handles if handle in self._queues]
            if not item.live:
                self.give_back(self._era, item.key, item.low, item.to, gone)
        if not handles:
            return
        self.last_handle = handles[0]
        names = QueueNames(handles, self._queues)
        if item.live:
            if not self.draining:
                await self._on_delivery(LiveDelivery(item, 0, item.to, chunk, handles, self._era, names))
            return
        if self._dropped.handles:
            # A delivery to a part that ended is of another life.
            self._dropped.exist(self.session.slice_name, self.attachments.without_part(handles))
        if not self.attachments.complete:
            self.attachments.delivering(handles)
        ranges, acked = self._came(item, handles)
        if acked:
            self._ack_again(item.key, acked)
        if self.draining or self._stopped:
            ranges = list(self._taken(item.key, ranges))
        if ranges:
            era = self._era
            for begin, end, same in ranges:
                if self.repeats is not None:
                    bodies = chunk.bodies[begin - item.first : end - item.first]
                    self.recent.add(same[0], item.key, begin, end, sum(map(len, bodies)))
                await self._on_delivery(InboxDelivery(item, begin, end, chunk, same, era, names))

    def _came(self, item: wire.Delivery, handles: Sequence[int]) -> tuple[list[HandledRange], list[HandledRange]]:
        """Records what came. Returns what is to be handed out, in order, and what is to be acked again."""
        key, told = item.key, Told(self.attachments.epoch, item.redelivered)
        if self.repeats is None or not self.repeats.copies.nack or self.doubts is None:
            return self.rule.came(key, item.low, item.to, handles, told)
        ranges, acked = list[HandledRange](), list[HandledRange]()
        for low, high, same in self.doubts.without_copies(key, item.low, item.to, handles, item.nacks_taken):
            new, again = self.rule.came(key, low, high, same, told)
            ranges += new
            acked += again
        return ranges, acked

    def _taken(self, key: bytes, ranges: Sequence[HandledRange]) -> Iterator[HandledRange]:
        """Gives back what came while the inbox drains or closes, or for handles that were stopped before this stream.
        Yields the rest."""
        for first, end, handles in ranges:
            late = handles if self.draining else self._stopped.late(handles, self._era.stream)
            if late:
                self.give_back(self._era, key, first, end, late)
            if len(late) < len(handles):
                gone = set(late)
                yield first, end, [handle for handle in handles if handle not in gone] if gone else handles

    def _ack_again(self, key: bytes, acked: Sequence[HandledRange]) -> None:
        for low, high, handles in acked:
            self.acks.add(key, low, high, handles)
        self.attachments.changed.set()

    def _lives_ended(self, handles: Sequence[int], dropped: Sequence[int]) -> None:
        for handle in dropped[:QUEUES_TOLD_MAX]:
            _log.info(
                "queue %s was dropped, and perhaps declared anew: what this inbox had of it at slice %s is over",
                *(show(self._queues[handle]), self.session.slice_name),
            )
        if len(dropped) > QUEUES_TOLD_MAX:
            _log.info("%d more queues were dropped", len(dropped) - QUEUES_TOLD_MAX)
        self._era = Era(self, self._era.number + 1, self._era.stream)
        without = self.attachments.without_part(handles)
        perhaps = set(handles).difference(dropped, without)
        for handle in handles:
            if handle not in perhaps:
                self._perhaps_from.pop(handle, None)
            else:
                self._perhaps_from.setdefault(handle, self._ended_in.get(handle, 0))
        self._ended_in.update(dict.fromkeys(handles, self._era.number))
        self._learn_ack_timeouts(dict.fromkeys(handles, 0))  # Those of the next lives are told behind this.
        if self.repeats is not None:  # Those whose part came after their attach may have the same life all the same.
            self.repeats.lose_doubts(perhaps)
        self.acks.forget(handles)
        self.rule.lives_ended(handles)
        self._dropped.exist(self.session.slice_name, set(handles).difference(without))
        self._dropped.dropped(self.session.slice_name, without)

    def _learn_ack_timeouts(self, timeouts_ms: Mapping[int, int]) -> None:
        for handle, ms in timeouts_ms.items():
            (self._timed.add if ms else self._timed.discard)(handle)
        self._on_ack_timeouts(timeouts_ms)

    def ended(self) -> None:
        """Takes in that the inbox is closed."""
        self.closed = True
        if self.doubts is not None and self._late is not None:
            self.doubts.asking.close()
            self._late.asking.close()

    # Acks.

    def ack(self, era: Era, key: bytes, first: int, end: int, handles: Sequence[int]) -> None:
        """Acks messages, except those of handles detached since (other consumers get them) and those of a life that
        ended (they are gone; if it may go on all the same, the next flush says so). Raises Unavailable once the inbox
        is closed.
        """
        self._check_open()
        attached = self._attached(handles)
        handles = self._of_life(era, attached)
        if len(handles) < len(attached) and self._perhaps_from and self.doubts is not None:
            lost = [one for one in attached if self._perhaps_from.get(one, era.number + 1) <= era.number]
            self.doubts.cannot_follow((end - first) * len(set(lost).difference(handles)))
        if not handles:
            return
        if self._is_now(era):
            self.rule.acked(key, first, end, handles)
            self.acks.add(key, first, end, handles)
            return
        for low, high, same in self.rule.acked_of_before(key, first, end, handles, self.attachments.unconfirmed):
            if self._era.stream:
                self.acks.add(key, low, high, same)
        if self.doubts is not None:
            self.doubts.ask_soon()

    def nack(self, era: Era, key: bytes, first: int, end: int, handles: Sequence[int], delay_ms: int) -> None:
        """Gives messages back, except those that were acked before, those of handles detached since, and those of a
        life that ended. Raises Unavailable once the inbox is closed."""
        self._check_open()
        now = self._is_now(era)
        for handle in self._of_life(era, self._attached(handles)):
            ranges = self.rule.nacked(key, first, end, handle, now)
            if ranges and self.rule.acks_go_first:
                self.acks.send()
            for low, high in ranges:
                self.nacks.add(key, low, high, (handle,), delay_ms)

    def _check_open(self) -> None:
        if self.closed:
            raise Unavailable("the inbox is closed; what it had unacked is given again", subject="inbox")
        self._loop.check()

    def check_call(self) -> None:
        """Raises BadCall from another event loop."""
        self._loop.check()

    def note_handed_out(self, era: Era, key: bytes, first: int, end: int, handles: Sequence[int]) -> None:
        """Notes that the program has these offsets, where that is not known otherwise."""
        if self._is_now(era):
            handles = self._of_life(era, self._attached(handles))
            self.rule.handed_out(key, first, end, handles, asyncio.get_running_loop().time())

    def give_back(self, era: Era, key: bytes, first: int, end: int, handles: Sequence[int]) -> None:
        """Gives back what the program was not handed out, also of handles that are being detached; except that of a
        life that ended, and that of an earlier stream, which comes again anyway."""
        handles = self._of_life(era, handles)
        if handles and not self.closed:
            for low, high, same in self.rule.given_back(key, first, end, handles, self._is_now(era)):
                self.nacks.add(key, low, high, same, None)

    def give_back_numbered(
        self, era: Era, key: bytes, first: int, end: int, handle: int
    ) -> list[tuple[int, int, NackPlace]]:
        """Gives back as `give_back` does. Returns ranges, each with the place of the nack that gives it back; none if
        the slice is of an older version: then order may break."""
        if not self.attachments.tells_nacks_taken:
            self.give_back(era, key, first, end, (handle,))
            return []
        ranges, stream = self._forget(era, key, first, end, handle), self._era.stream
        return [(low, high, (stream, self.nacks.add_numbered(key, low, high, handle))) for low, high in ranges]

    def forget_copy(self, era: Era, key: bytes, first: int, end: int, handle: int) -> None:
        """Takes in that messages came, and are given again by an earlier nack."""
        self._forget(era, key, first, end, handle)

    def _forget(self, era: Era, key: bytes, first: int, end: int, handle: int) -> Ranges:
        """Forgets that messages came, so that they are new when they come again. Returns those that do so only if they
        are nacked."""
        if self.closed or not self._of_life(era, (handle,)):
            return ()
        return self.rule.forgotten(key, first, end, handle, self._is_now(era))

    def _attached(self, handles: Sequence[int]) -> Sequence[int]:
        return [handle for handle in handles if handle in self._queues] if self._any_detached else handles

    def _is_now(self, era: Era) -> bool:
        """Returns whether the era's stream is the one that is open."""
        return era.stream == self._era.stream != 0

    def _of_life(self, era: Era, handles: Sequence[int]) -> Sequence[int]:
        """Returns the handles whose queue has the life that it had in the era."""
        if era is self._era or not self._ended_in:
            return handles
        return [handle for handle in handles if self._ended_in.get(handle, 0) <= era.number]

    async def flush(self) -> None:
        """Waits until the slice has every ack, or had no need of it any more: its message is gone.

        After a lost stream it waits until a new stream is attached, and asks there for what was acked before. With
        `drop_repeats` False, acks that were lost with their stream are not remembered: it waits for the others only.
        Raises the error with which the slice refused acks meanwhile, or since the last flush; the error with which it
        refuses to tell; Unavailable if acks were forgotten at a bound, or with a life that may not have ended.
        """
        begun = self._ack_errors.begin()
        await self.nacks.flush()
        await self.acks.flush()
        if self.doubts is not None and self._late is not None:
            await self._settle(self.doubts, self._late)
        error = self._ack_errors.end(begun)
        if error is not None:
            raise error

    async def _settle(self, doubts: AckDoubts, late: LateAsking) -> None:
        """Waits until no ack is in doubt or late any more; for late ones no longer than LATE_ACKS_WAIT_S in all, since
        the program may go on acking late. Those that are left then are told."""
        until: float | None = None
        while True:
            await doubts.settle()
            until = until or asyncio.get_running_loop().time() + LATE_ACKS_WAIT_S
            untold = await late.settle(until)
            if untold:
                self._ack_errors.add(acks_came_late(self.session.slice_name, untold))
            if not await self.acks.flush():
                continue  # Acks of messages that had come again were lost with another stream.
            if not late.waits:
                return
            if asyncio.get_running_loop().time() >= until:
                self._ack_errors.add(acks_came_late(self.session.slice_name, late.take_untold()))
                return

    @property
    def lacking(self) -> int:
        """Returns how many acks the slice lacks, as far as known, although a stream is open and all is attached on
        it."""
        return self.doubts.messages if self.doubts is not None and self.attachments.complete else 0

    @property
    def flushed(self) -> bool:
        """Returns whether the slice has every ack, and every nack, as far as known."""
        return not self.acks and not self.nacks and (self.repeats is None or not self.repeats.in_doubt)

    def queue_of(self, consumer: int | bytes) -> bytes:
        """Returns the queue of a handle; empty if it has left the inbox."""
        return self._queues.get(consumer, b"") if isinstance(consumer, int) else consumer

    def part_of(self, era: Era, handle: int) -> PartLife:
        """Returns the life that the queue of a handle had in the era, as far as the slice told."""
        life = self.attachments.life_of(handle) if self._of_life(era, (handle,)) else LIFE_OVER
        return PartLife(self.session.slice_name, life if handle in self._queues else LIFE_LEFT)

    def _may_be_late(self, acks: Sequence[Acked]) -> bool:
        """Returns whether the slice is to tell which of these acks came too late."""
        timed = self._timed if self.repeats is not None else ()
        return bool(self._stopped) or (bool(timed) and any(not self._timed.isdisjoint(one.consumers) for one in acks))

    def _acks_late(self, acks: Sequence[Acked]) -> None:
        """Takes in that acks had no effect: the slice had taken the messages back. Of queues that are stopped, or left
        the inbox, the next flush tells that; of others they come again here, and are acked again."""
        gone: set[AckConsumer] = {
            handle
            for one in acks
            for handle in one.consumers
            if isinstance(handle, int) and (handle in self._stopped or handle not in self._queues)
        }
        known = {handle for one in acks for handle in one.consumers}.difference(gone)
        never = without_consumers(acks, known)
        late = sum((one.end - one.first) * len(one.consumers) for one in never)
        self.rule.answered(never)
        self.rule.acked_late(without_consumers(acks, gone))
        if self._late is not None:
            self._late.found()
        if late:
            error = acks_late(self.session.slice_name, late)
            self._ack_errors.add(error)
            self._telling.error(error)

    def _acks_refused(self, error: ShoalError) -> None:
        if not isinstance(error, OutcomeUnknown):
            self._ack_errors.add(error)
            self._telling.error(error)
            self.refused(error)
