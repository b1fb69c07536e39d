"""Consumes one or thousands of queues through one bounded buffer, over all slices: the inbox.

Belongs here: which queues and slices, the buffer, handing out messages. Not here: one slice alone (inbox_slice.py).
Long because all that applications may ask of an inbox is one class.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from time import monotonic
from types import TracebackType

from shoal.attach_calls import AttachCalls, Detaching
from shoal.attachments import Attachments
from shoal.core.cluster_map import ClusterMap
from shoal.core.refusals import acks_lacking, deadline_exceeded, no_such_queue
from shoal.dropped_queues import DroppedQueues
from shoal.gaps import OnGap
from shoal.inbox_buffer import InboxBuffer
from shoal.inbox_slice import InboxSlice
from shoal.limits import (
    ATTACH_OTHERS_S,
    CLOSE_S,
    CONSUME_QUEUES_MAX,
    DRAIN_LOOK_S,
    MESSAGES_PER_TURN_MAX,
    TURN_S,
)
from shoal.long_waits import LongWaits
from shoal.lost_queues import LostQueues
from shoal.messages import Delivery, Message, check_acked
from shoal.routing import Routing
from shoal.window_look import WindowLook
from shoal_contract.arguments import DEADLINE_S, TIMEOUT, check_delay_ms
from shoal_contract.errors import DeadlineExceeded, ResourceExhausted, ShoalError, Unavailable
from shoal_contract.limits import WINDOW_BYTES_DEFAULT, WINDOW_MESSAGES_DEFAULT
from shoal_contract.names import Name, direct_key, encode_name
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.tasks import all_ended


class Inbox:
    """Hands out the messages of its queues. Use with `async with`, then `async for message in inbox` or
    `async for delivery in inbox.deliveries()`.

    Delivers at least once: messages not acked when the inbox closes are delivered again, here or elsewhere.
    """

    def __init__(
        self,
        routing: Routing,
        queues: Sequence[bytes],
        window: wire.Attach,
        buffer_bytes: int,
        drop_repeats: bool,
        deadline_s: float,
        on_gap: OnGap | None = None,
    ) -> None:
        self._routing = routing
        self._on_gap = on_gap
        self._first_queues = queues
        self._window = window
        self._drop_repeats = drop_repeats
        self._deadline_s = deadline_s
        self._queues: dict[int, bytes] = {}
        """Handle -> queue. A handle is never used twice."""
        self._handles: dict[bytes, int] = {}
        self._attach_calls = AttachCalls(self._handles)
        self._last_handle = 0
        self._slices: dict[str, InboxSlice] = {}
        self._buffer_bytes = buffer_bytes
        self._buffer = InboxBuffer(self._queues, buffer_bytes, on_gap)
        self._closed = False
        self._draining = False
        self._unlisten: Callable[[], None] = lambda: None
        self._current: Iterator[Message] = iter(())
        self._last: Message | None = None
        """The last message handed out: `_current` yields what its delivery holds after it."""
        self._turn, self._turn_until_s = 0, 0.0
        telling, wake = routing.telling, self._buffer.changed.set
        self._dropped = DroppedQueues(self._queues, self._home_of, telling, wake, bool(queues))
        self._lost = LostQueues(
            self._queues, self._home_of, self._attachments_at, self._lose, telling, wake, bool(queues)
        )
        full = (window.window_messages or WINDOW_MESSAGES_DEFAULT, window.window_bytes or WINDOW_BYTES_DEFAULT)
        self._waits = LongWaits(self._buffer, self._put_current_back)
        self._look = WindowLook(*full, self._queues, self._slices, self._buffer.__bool__, telling)

    async def __aenter__(self) -> Inbox:
        self._routing.map.loop.check()
        if self._closed:
            raise Unavailable("the inbox is closed; ask the broker for another one", subject="inbox")
        self._routing.check_takes_inboxes()
        self._unlisten = self._routing.map.listen(self._follow)
        try:
            self._follow(self._routing.map.current)
            await self._attach(self._first_queues, self._deadline(None))
        except ShoalError:
            await self.close()
            raise
        except BaseException:
            self._end()
            raise
        self._look.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Sends the acks given so far, gives back what was not handed out, waiting at most CLOSE_S, and closes the
        inbox. Iterations end. Raises no ShoalError but BadCall, from another event loop: what a slice did not get is
        given again."""
        self._routing.map.loop.check()
        if self._closed:
            return
        self._closed = True
        self._put_current_back()
        self._buffer.close()
        deadline = asyncio.get_running_loop().time() + CLOSE_S
        try:
            results = await all_ended(self._give_all_back(deadline), self._flush(deadline))
        finally:
            self._end()
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, ShoalError):
                raise result
        await asyncio.gather(*(at_slice.session.close() for at_slice in self._slices.values()))

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Message:
        """Returns the next message of any queue. Raises the error of a slice that refuses the inbox; NoSuchQueue, once,
        when all its queues have been dropped (not if it was opened without queues); Conflict, once for each, when
        another session has taken over an exclusive queue, which is not the inbox's any more. If cancelled, it takes
        none."""
        self._routing.map.loop.check()
        if self._is_others_turn(1):
            await asyncio.sleep(0)
        message = next(self._current, None)
        if message is None and (message := await self._message()) is None:
            raise StopAsyncIteration
        self._handed_out(message)
        return message

    async def get(self, timeout: float | None = None) -> Message:
        """Returns the next message of any queue, as iteration does, waiting at most `timeout` seconds: None for ever, 0
        not at all. A call that ends without a message, cancelled or late, takes none.

        Raises DeadlineExceeded, which is a TimeoutError, if no message came; Unavailable once the inbox is closed, or
        drained; the errors of iteration (a slice's refusal; NoSuchQueue, once, when all queues have been dropped).
        """
        seconds = None if timeout is None else TIMEOUT.check(timeout)
        if self._is_others_turn(1):
            await asyncio.sleep(0)
        waiting = asyncio.timeout(seconds)
        try:
            async with waiting:
                message = await self._message()
        except TimeoutError:
            if not waiting.expired():
                raise
            raise DeadlineExceeded(f"inbox: no message came within {seconds:g} s", subject="inbox") from None
        if message is None:
            raise Unavailable("the inbox is closed: there is no next message", subject="inbox")
        self._handed_out(message)
        return message

    def _handed_out(self, message: Message) -> None:
        self._last = message
        if not self._drop_repeats:
            message.note_handed_out()

    def _is_others_turn(self, messages: int) -> bool:
        """Returns whether other tasks are to run now, also where messages are at hand all the time and the program's
        work never awaits: else no ack is sent meanwhile. `messages`: so many are handed out. The next turn counts from
        now, so that calls which are cancelled in each turn get on."""
        self._turn += messages
        if self._turn < MESSAGES_PER_TURN_MAX and monotonic() < self._turn_until_s:
            return False
        self._turn, self._turn_until_s = 0, monotonic() + TURN_S
        return True

    async def _message(self) -> Message | None:
        """Returns the next message; None: none will come. Several tasks may wait here: after each wait, another one may
        have taken a delivery, and left some of it."""
        self._check_entered()
        while (message := next(self._current, None)) is None:
            if self._has_some:
                delivery = self._take()
                self._current = iter(()) if delivery is None else delivery.messages()
            elif not await self._more():
                return None
        return message

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """Yields batches as they come. Don't mix with `async for message`: each message goes to one of the two. Raises
        what iteration raises."""
        self._check_entered()
        while self._has_some or await self._more():
            delivery = self._take() if self._has_some else None
            if delivery is not None:
                if not self._drop_repeats:
                    delivery.note_handed_out()
                yield delivery
                if self._is_others_turn(0):  # By time alone: a batch has many messages.
                    await asyncio.sleep(0)

    async def attach(self, *queues: Name, deadline_s: float | None = None) -> None:
        """Adds queues. Returns when they are attached at their homes, and at the other slices that answer promptly. At
        a slice that is away they are attached when it is back.

        Raises NoSuchQueue, and Conflict for an exclusive queue that another session keeps (the other queues are added);
        InvalidName, DeadlineExceeded, ResourceExhausted (none is).
        """
        names = [encode_name(queue, "queue") for queue in queues]
        deadline = self._deadline(deadline_s)
        self._check_open()
        await self._attach(names, deadline)

    async def detach(self, *queues: Name, deadline_s: float | None = None) -> None:
        """Removes queues; their unacked messages are delivered again elsewhere, and those that were not handed out yet
        are given back. Does nothing for unknown queues.

        Raises DeadlineExceeded if a slice is slow to confirm; the queues are detached all the same.
        """
        names = [encode_name(queue, "queue") for queue in queues]
        deadline = self._deadline(deadline_s)
        with self._attach_calls.detaching(names) as call:
            await self._detach(names, deadline, call)
        await self._attach_calls.left(names, deadline)

    def stop(self, *queues: Name) -> None:
        """Takes nothing more of these queues, without waiting. They stay attached: what was handed out can be acked.
        What the inbox holds of them already is still handed out. To go on, `detach` them and `attach` them again: an
        attach alone changes nothing."""
        self._routing.map.loop.check()
        names = [encode_name(queue, "queue") for queue in queues]
        handles = [self._handles[name] for name in names if name in self._handles]
        for at_slice in self._slices.values():
            at_slice.stop(handles)

    def ack(self, *messages: Message | Delivery) -> None:
        """Acks each message or delivery, as its own `ack` does."""
        check_acked(messages)
        for message in messages:
            message.ack_nowait()

    def nack(self, *messages: Message | Delivery, delay_s: float = 0) -> None:
        """Nacks each message or delivery, as its own `nack` does."""
        check_acked(messages, "nack")
        check_delay_ms(delay_s)
        for message in messages:
            message.nack_nowait(delay_s)

    async def flush(self, *, deadline_s: float | None = None) -> None:
        """Waits until the slices have every ack: messages acked before never come again.

        After a lost connection it waits until the slice is back, and sends it the acks that had no answer. They count
        wherever their messages are by then, with another consumer for example, but not where one has nacked them with a
        delay; and not at a slice of an older version, before the messages come here again. Of two kinds of acks it
        knows nothing: those of queues detached since, or taken over by another session, and, with `drop_repeats=False`,
        those lost with a connection or later than the ack timeout; these messages come again. An ack that is later than
        the ack timeout takes the message from no other consumer: this waits 1 s until the message comes here again, and
        is acked again, or is acked by the other one.

        Raises DeadlineExceeded, naming the slices that have not answered, or that lack acks: flush again, or take it
        that these messages come again. Raises Unavailable, once, for acks whose messages may come again: those lost
        with a connection, or given after it, where the messages were too many or too scattered to be remembered; those
        where it is not known whether the slice has the same queue as before (given after the lost connection, they are
        not sent); those later than the ack timeout that had no effect in that time. Raises the error with which a
        slice refused acks, once.
        """
        await self._flush(self._deadline(deadline_s))

    async def drain(self, *, deadline_s: float | None = None) -> None:
        """Takes no more messages, waits until the program has done the work on those that it has, and closes the inbox.

        The program gets what this inbox holds already; then iterations end, and `get` raises Unavailable. This returns
        when all of it is acked and the slices have the acks. What comes meanwhile is given back, and what was not
        taken by then. Call it from another task than those that take messages.

        Raises DeadlineExceeded if messages are unacked at the deadline (they are given again), and what `flush` raises;
        the inbox is closed all the same, also if this is cancelled. Raises Unavailable if the inbox is not open.
        """
        deadline = self._deadline(deadline_s)
        self._check_open()
        self._draining = True
        self._stop()
        self._buffer.end()
        try:
            await self._done(deadline)
            await self._flush(deadline)
        finally:
            await self.close()

    def _stop(self) -> None:
        """Asks the slices for nothing more. What comes all the same is given back."""
        for at_slice in self._slices.values():
            at_slice.stop_all()

    def _put_current_back(self) -> None:
        """Puts what the program has not taken of the current delivery back into the buffer."""
        last, self._last, self._current = self._last, None, iter(())
        if last is not None:
            self._buffer.put_back(last.after())

    async def _give_all_back(self, deadline: float) -> None:
        """Gives back what was not handed out, so that its delivery does not count; also what is on its way."""
        self._stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._buffer.give_all_back()
                await asyncio.gather(*(at_slice.nacks.flush_all() for at_slice in self._slices.values()))

    async def _done(self, deadline: float) -> None:
        """Waits until the program has acked all that it was handed out. Raises DeadlineExceeded."""
        while not self._closed:
            if not next(self._unacked(), 0):
                self._buffer.tell_gaps()  # Perhaps the program asks for nothing more, and would not come to them.
                if not self._buffer and not (self._last is not None and self._last.after()):
                    return
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise self._not_drained()
            await asyncio.sleep(min(left_s, DRAIN_LOOK_S))

    def _not_drained(self) -> DeadlineExceeded:
        many = sum(self._unacked())
        rest = "some messages were not taken by" if not many else f"{many:,} messages are unacked at"
        what = f"{rest} the deadline, and are given again"
        return DeadlineExceeded(f"drain of an inbox: {what}", subject="inbox", value=many)

    def _unacked(self) -> Iterator[int]:
        now_s = asyncio.get_running_loop().time()
        for name, at_slice in self._slices.items():
            yield from at_slice.rule.unsettled(self._queues, partial(self._waits.timeouts_s, name), now_s)

    async def _flush(self, deadline: float) -> None:
        at_slices = list(self._slices.values())
        try:
            async with asyncio.timeout_at(deadline):
                with self._buffer.awaiting_answers():
                    results = await all_ended(*(at_slice.flush() for at_slice in at_slices))
        except TimeoutError:
            slow = ", ".join(at_slice.session.slice_name for at_slice in at_slices if not at_slice.flushed)
            lacking = sum(at_slice.lacking for at_slice in at_slices)
            if lacking:
                raise acks_lacking(slow, lacking) from None
            raise deadline_exceeded(f"acks or nacks at slice {slow}") from None
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _attach(self, queues: Sequence[bytes], deadline: float) -> None:
        names = await self._attach_calls.to_attach(queues, deadline)
        self._check_open()
        with self._attach_calls.attaching(names):
            await self._attach_new(names, deadline)

    async def _attach_new(self, names: Sequence[bytes], deadline: float) -> None:
        self._check_count(len(self._queues) + len(names))
        handles = range(self._last_handle + 1, self._last_handle + 1 + len(names))
        self._last_handle += len(names)
        self._queues.update(zip(handles, names, strict=True))
        self._handles.update(zip(names, handles, strict=True))
        self._lost.begin_attach(handles)
        refused: ShoalError | None = None
        try:
            for at_slice in self._slices.values():
                at_slice.attachments.attach(handles)
            with self._buffer.awaiting_answers():
                absent = await self._at_homes(handles, deadline)
                await self._at_others(handles, deadline)
        except BaseException:
            self._forget(handles)
            raise
        finally:
            refused = self._lost.end_attach(handles)
        absent = [handle for handle in absent if handle in self._queues]  # Else it was detached meanwhile.
        if absent:
            name = self._queues[absent[0]]
            self._forget(absent)
            raise no_such_queue(name)
        if refused is not None:
            raise refused

    def _check_count(self, count: int) -> None:
        if count > CONSUME_QUEUES_MAX:
            raise ResourceExhausted(
                f"inbox queues: {count}; the limit is {CONSUME_QUEUES_MAX}",
                subject="inbox queues",
                limit=CONSUME_QUEUES_MAX,
                value=count,
            )

    async def _at_homes(self, handles: Iterable[int], deadline: float) -> list[int]:
        """Waits until each queue is attached at its home. Returns those that do not exist: their home does not have
        them."""
        homes: dict[str, list[int]] = {}
        for handle in handles:
            homes.setdefault(self._home_of(self._queues[handle]), []).append(handle)
        at_slices = {self._slices[name]: some for name, some in homes.items()}
        await asyncio.gather(*(at_slice.attachments.wait(some, deadline) for at_slice, some in at_slices.items()))
        return [
            handle for at_slice, some in at_slices.items() for handle in some if handle in at_slice.attachments.absent
        ]

    async def _at_others(self, handles: Sequence[int], deadline: float) -> None:
        """Waits until the queues are attached at all slices that are not away, but at most ATTACH_OTHERS_S."""
        deadline = min(deadline, asyncio.get_running_loop().time() + ATTACH_OTHERS_S)

        async def wait(at_slice: InboxSlice) -> None:
            with contextlib.suppress(DeadlineExceeded, ResourceExhausted):
                await at_slice.attachments.wait(handles, deadline)

        await asyncio.gather(*(wait(at_slice) for at_slice in self._slices.values() if not at_slice.session.away))

    async def _detach(self, names: Sequence[bytes], deadline: float, call: Detaching) -> None:
        handles = self._taken_out([self._handles[name] for name in dict.fromkeys(names) if name in self._handles])
        if not handles:
            return
        left = set(self._slices)

        def sent(slice_name: str) -> None:
            left.discard(slice_name)
            call.sent(len(left))

        try:
            with self._buffer.awaiting_answers():
                detaches = [at_slice.detach(handles, deadline, call.hurry, sent) for at_slice in self._slices.values()]
                results = await all_ended(*detaches)
        finally:
            self._leave(handles)  # A call that is cancelled at once has begun none of them.
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _forget(self, handles: Iterable[int]) -> None:
        """Removes queues and detaches them without waiting. What was not handed out is given back."""
        self._leave(self._taken_out(handles))

    def _leave(self, handles: Sequence[int]) -> None:
        """Detaches at all slices without waiting, where it was not done yet."""
        for at_slice in self._slices.values() if handles else ():
            at_slice.leave(handles)

    def _taken_out(self, handles: Iterable[int]) -> list[int]:
        """Removes queues. Returns the handles that the inbox had: a queue may have another one since."""
        leaving = {handle: self._queues.pop(handle) for handle in handles if handle in self._queues}
        for name in leaving.values():
            del self._handles[name]
        handles = list(leaving)
        self._dropped.leave(handles)
        if handles:
            for at_slice in self._slices.values():
                at_slice.take_out(leaving)
            self._put_current_back()
            self._buffer.give_back_of(set(handles))
            self._waits.leave(handles)
        return handles

    def _lose(self, handle: int) -> None:
        """Removes a queue that another session consumes. What came of it and was not taken yet is not handed out."""
        self._forget([handle])

    def _attachments_at(self, slice_name: str) -> Attachments:
        return self._slices[slice_name].attachments

    def _home_of(self, queue: bytes) -> str:
        return self._routing.map.current.owner_of(direct_key(queue))

    def _deadline(self, deadline_s: float | None) -> float:
        self._routing.map.loop.check()
        seconds = self._deadline_s if deadline_s is None else DEADLINE_S.check(deadline_s)
        return asyncio.get_running_loop().time() + seconds

    def _follow(self, cluster_map: ClusterMap) -> None:
        """Attaches at slices that are new in the map. A slice that left the map owns nothing and stays silent."""
        for name in cluster_map.slices:
            if name not in self._slices:
                self._slices[name] = InboxSlice(
                    name,
                    self._routing,
                    self._queues,
                    self._window,
                    self._buffer_bytes,
                    self._buffer.put,
                    self._drop_repeats,
                    self._buffer.changed.set,
                    self._dropped,
                    self._lost.ended,
                    partial(self._waits.learn, name),
                )
                if self._draining:
                    self._slices[name].stop_all()

    @staticmethod
    def _not_open() -> Unavailable:
        return Unavailable("the inbox is not open: use `async with broker.consume(...) as inbox`", subject="inbox")

    def _check_open(self) -> None:
        if self._draining and not self._closed:
            raise Unavailable("the inbox is draining: it closes when its messages are acked", subject="inbox")
        if self._closed or not self._slices:
            raise self._not_open()

    def _check_entered(self) -> None:
        self._routing.map.loop.check()
        if not self._slices and not self._closed:
            raise self._not_open()

    @property
    def _has_some(self) -> bool:
        return bool(self._buffer) and not self._closed

    def _take(self) -> Delivery | None:
        """Returns the oldest delivery; None: it was a gap, which is told."""
        self._look.moving = True
        found = self._buffer.take()
        if isinstance(found, Delivery):
            return found
        found.tell(self._on_gap)
        return None

    async def _more(self) -> bool:
        """Waits until there may be more to take. Returns False if no more will come. Raises a slice's refusal."""
        if self._closed or self._draining:
            return False
        self._raise_refusal()
        self._buffer.changed.clear()
        await self._buffer.changed.wait()
        return True

    def _raise_refusal(self) -> None:
        for at_slice in self._slices.values():
            if at_slice.error is not None:
                raise at_slice.error
        error = self._lost.take_error() or self._dropped.take_error()
        if error is not None:
            raise error

    def _end(self) -> None:
        """Ends the inbox without waiting. What is still buffered will be delivered again."""
        self._closed = True
        self._buffer.close()
        self._unlisten()
        self._look.close()
        self._waits.close()
        self._lost.close()
        for at_slice in self._slices.values():
            for gap in at_slice.held.gaps if not at_slice.closed else ():
                gap.tell(self._on_gap)
            at_slice.ended()
            at_slice.attachments.fail(Unavailable("the inbox was closed meanwhile", subject="inbox"))
            at_slice.session.close_soon()
