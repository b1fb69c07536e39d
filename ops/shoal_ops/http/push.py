"""Consumes queues for event streams. Many streams share an inbox, so that a stream costs no connection.

Belongs here: which stream gets which messages, and how much it may hold. Not here: how they are written (events.py).

A lane is one inbox and carries at most one stream of each queue. Streams that compete for a queue are in different
lanes, and the slices share the messages out among them. A stream that begins while a former one ends takes that one's
lane: so its attach is behind the detach at every slice, and what the former one held comes first, in order. The window
of a queue bounds what its stream holds: a slice sends no more until acks come. All lanes together are bounded by
HELD_BYTES_MAX.

Acks and nacks come by POST, here or to another gateway, and go to the slice past the inbox. So the inbox cannot tell
which repeats its reader is done with, and leaves none out: one whose ack changed nothing would never be seen again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import shoal
from shoal_contract.errors import Conflict, NoSuchQueue, ShoalError, exhausted
from shoal_contract.names import show
from shoal_ops.http import limits
from shoal_runtime.tasks import Tasks

_log = logging.getLogger(__name__)

MESSAGE_BYTES: Final = 200
HEADER_BYTES: Final = 100
GAP_BYTES: Final = 200
"""What each takes in memory beside its texts, about."""

Item = shoal.Message | shoal.Gap


class Batch(list[Item]):
    """Is what `Stream.next` returns. `held_bytes`: what it counts as until it is written."""

    held_bytes = 0


class Stream:
    """Holds the messages for one reader of one queue. `ended`: why it was ended from this side, else "". `problem`: the
    error that ended it, for its reader. `left`: whether its reader is gone, so that it is closed soon.

    `held_bytes`: the messages that wait, and those that `next` returned and `written` has not taken back.
    """

    def __init__(self, queue: bytes, push: Push, inbox: shoal.Inbox) -> None:
        self.queue = queue
        self._inbox = inbox
        self.ended = ""
        self.left = False
        self.closing = asyncio.Event()
        """Set once its place in the lane is free."""
        self.problem: ShoalError | None = None
        self.held_bytes = 0
        self._lent_bytes = 0
        """The part of `held_bytes` that `next` returned."""
        self._push = push
        self._held: OrderedDict[object, tuple[Item, int]] = OrderedDict()
        """The items that wait, and what each counts as: messages by key and offset."""
        self._changed = asyncio.Event()
        self._over = asyncio.Event()

    def put(self, message: Item, held_bytes: int) -> None:
        """Adds a message, or a gap, that counts as so many bytes. One that waits already, and came again, takes its
        place. No window bounds live messages: a reader that is behind loses them."""
        name: object = object()
        if not isinstance(message, shoal.Gap):
            if not message.live:
                name = message.key_bytes, message.offset
            elif self.held_bytes >= limits.WINDOW_BYTES:
                return
        before = self._held.get(name)
        self._held[name] = message, held_bytes
        self._count(held_bytes - (before[1] if before else 0))
        self._changed.set()

    def end(self, reason: str, problem: ShoalError | None = None) -> None:
        """Ends the stream. Its waiting messages are given back at once, as no reader saw them: its writer may hang on
        a reader that never reads."""
        if not self.ended:
            self.ended, self.problem = reason, problem
            self._inbox.stop(self.queue)
        for message, _ in self._held.values():
            give_back(message)
        self._held.clear()
        self._count(self._lent_bytes - self.held_bytes)
        self._changed.set()
        self._over.set()

    async def until_ended(self) -> None:
        await self._over.wait()

    async def next(self, wait_s: float) -> Batch:
        """Returns the messages that came, at most about EVENT_BATCH_BYTES; none after `wait_s` seconds without any, or
        once ended.

        Give them to `written` once they are no longer needed.
        """
        batch = Batch()
        if not self._held and not self.ended:
            self._changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                return batch
        batch_bytes = 0
        while self._held and not self.ended and batch_bytes < limits.EVENT_BATCH_BYTES:
            _, (message, held_bytes) = self._held.popitem(last=False)
            batch.append(message)
            batch.held_bytes += held_bytes
            batch_bytes += size_of(message)
        self._lent_bytes += batch.held_bytes
        return batch

    def written(self, batch: Batch) -> None:
        """Takes back what `next` returned."""
        self._lent_bytes -= batch.held_bytes
        self._count(-batch.held_bytes)

    def forget(self) -> None:
        """Counts nothing as held any more: none of its messages is in use."""
        self._lent_bytes = 0
        self._count(-self.held_bytes)

    def _count(self, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        self._push.held_bytes += more_bytes


class _Lane:
    def __init__(self) -> None:
        self.inbox: shoal.Inbox
        self.streams: dict[bytes, Stream | None] = {}
        """The stream of each queue; None while it is being opened."""
        self.leaving: dict[bytes, Stream] = {}
        """The last stream of each queue that is being detached."""

    def hand_out(self, queue: bytes, item: Item, held_bytes: int = GAP_BYTES) -> None:
        """Gives a message, or a gap, to the queue's stream, if there is one."""
        stream = self.streams.get(queue)
        if stream is not None and not stream.ended:
            stream.put(item, held_bytes)
        else:
            give_back(item)


class Push:
    """Opens and closes streams. `held_bytes`: what all streams hold together. `stop` ends everything."""

    def __init__(self, broker: shoal.Broker, tasks: Tasks) -> None:
        self._broker = broker
        self._tasks = tasks
        self._lanes: list[_Lane] = []
        self._streams: set[Stream] = set()
        self._opening = 0
        self._lane_lock = asyncio.Lock()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._streams)

    async def open(self, queue: bytes) -> Stream:
        """Begins to consume a queue. Raises ResourceExhausted, NoSuchQueue, Unavailable. `close` the stream in any
        case."""
        count = len(self._streams) + self._opening + 1
        if count > limits.STREAMS_MAX:
            raise exhausted("event streams", limits.STREAMS_MAX, count)
        self._opening += 1
        try:
            await self._until_former_ones_close(queue)
            lane = await self._free_lane(queue)
            stream = Stream(queue, self, lane.inbox)
            # Registered before the first message comes.
            lane.streams[queue] = stream
            try:
                await lane.inbox.attach(queue, deadline_s=limits.DEADLINE_S)
            except BaseException:
                stream.end("refused")
                stream.closing.set()
                del lane.streams[queue]
                raise
            self._streams.add(stream)
            return stream
        finally:
            self._opening -= 1

    async def close(self, stream: Stream) -> None:
        """Closes a stream. Messages that it got and that are not acked are delivered again, here or elsewhere."""
        self._streams.discard(stream)
        stream.end("closed")
        stream.forget()
        for lane in list(self._lanes):
            if lane.streams.get(stream.queue) is stream:
                del lane.streams[stream.queue]
                lane.leaving[stream.queue] = stream
                # What waits for this attaches only once the detach below has begun: there is no await between.
                stream.closing.set()
                try:
                    await lane.inbox.detach(stream.queue, deadline_s=limits.DEADLINE_S)
                except ShoalError as error:
                    _log.warning(
                        "an event stream of queue %s ended, but a slice did not confirm it: %s. Until it does,"
                        " messages may wait for this gateway; they then go to other consumers",
                        *(show(stream.queue), error),
                    )
                finally:
                    if lane.leaving.get(stream.queue) is stream:
                        del lane.leaving[stream.queue]
        stream.closing.set()

    def end_all(self, reason: str) -> None:
        for stream in self._streams:
            stream.end(reason)

    def told(self, error: Exception) -> None:
        """Is told the connection's errors that no call raises. Ends the streams of a queue that was dropped."""
        if not isinstance(error, NoSuchQueue):
            return
        for stream in self._streams:
            if show(stream.queue) == error.subject:
                stream.end("dropped", error)

    async def stop(self) -> None:
        self.end_all("stopping")
        for lane in list(self._lanes):
            await lane.inbox.close()

    def _end_largest(self) -> None:
        """Ends the streams that hold most, until those that go on hold no more than HELD_BYTES_MAX together. What
        ended ones are still writing does not count: it goes with its writer, soon, and ending others would not free
        it."""
        if self.held_bytes <= limits.HELD_BYTES_MAX:
            return
        running = [stream for stream in self._streams if not stream.ended]
        held_bytes = sum(stream.held_bytes for stream in running)
        for stream in sorted(running, key=lambda stream: stream.held_bytes, reverse=True):
            if held_bytes <= limits.HELD_BYTES_MAX:
                return
            held_bytes -= stream.held_bytes
            stream.end("memory")

    async def _until_former_ones_close(self, queue: bytes) -> None:
        """Waits until streams of this queue that have lost their readers, or were ended, are being closed: soon, as
        their last words take LAST_WORDS_S at most. The new stream does not compete with them."""
        former = [stream for lane in self._lanes if (stream := lane.streams.get(queue)) is not None]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.DEADLINE_S):
                for stream in former:
                    if stream.left or stream.ended:
                        await stream.closing.wait()

    async def _free_lane(self, queue: bytes) -> _Lane:
        """Returns a lane without a stream of this queue, with a place reserved for it: one that is detaching the queue
        before others. Raises ResourceExhausted."""
        async with self._lane_lock:
            free = [lane for lane in self._lanes if queue not in lane.streams]
            if free:
                lane = min(free, key=lambda lane: queue not in lane.leaving)
                lane.streams[queue] = None
                return lane
            if len(self._lanes) >= limits.STREAMS_PER_QUEUE_MAX:
                what = f"event streams of queue {show(queue)}"
                raise exhausted(what, limits.STREAMS_PER_QUEUE_MAX, len(self._lanes) + 1)
            lane = await self._new_lane()
            lane.streams[queue] = None
            return lane

    async def _new_lane(self) -> _Lane:
        lane = _Lane()
        inbox = self._broker.consume(
            (),
            on_gap=lambda gap: lane.hand_out(gap.queue_bytes, gap),
            window_messages=limits.WINDOW_MESSAGES,
            window_bytes=limits.WINDOW_BYTES,
            drop_repeats=False,
            deadline_s=limits.DEADLINE_S,
        )
        lane.inbox = await inbox.__aenter__()
        self._lanes.append(lane)
        self._tasks.start(f"push {len(self._lanes)}", self._hand_out(lane))
        return lane

    async def _hand_out(self, lane: _Lane) -> None:
        refused: ShoalError | None = None
        try:
            while await self._hand_out_until_taken_over(lane):
                pass
        except ShoalError as error:
            refused = error
            _log.error(
                "a slice sends no more messages to event streams: %s. Those streams end; their readers may connect"
                " again",
                error,
            )
        finally:
            self._lanes.remove(lane)
            for stream in lane.streams.values():
                if stream is not None:
                    stream.end("refused", refused)
            await lane.inbox.close()

    async def _hand_out_until_taken_over(self, lane: _Lane) -> bool:
        """Hands out messages until the lane loses a queue, which is exclusive, to another session: its stream ends, and
        True is returned. False: the inbox is closed."""
        try:
            async for delivery in lane.inbox.deliveries():
                for message, held_bytes in counted(delivery):
                    lane.hand_out(message.queue_bytes, message, held_bytes)
                self._end_largest()
        except Conflict as error:
            for queue, stream in lane.streams.items():
                if stream is not None and show(queue) == error.subject:
                    stream.end("taken over", error)
            return True
        return False


def counted(delivery: shoal.Delivery) -> Iterator[tuple[shoal.Message, int]]:
    """Yields each message of a delivery, once for each queue, and what it counts as. The last message counts for all:
    the others keep the whole chunk in memory too, so it is free once the last one is written. Live messages, of which
    some may be lost, count alone."""
    whole_bytes = delivery.size_bytes
    for message in delivery.messages():
        if delivery.live:
            yield message, size_of(message)
        else:
            yield message, MESSAGE_BYTES + (whole_bytes if message.offset == delivery.end - 1 else 0)


def give_back(item: Item) -> None:
    """Gives back a message that no reader saw: its delivery does not count."""
    if not isinstance(item, shoal.Gap):
        item.give_back()


def size_of(message: Item) -> int:
    """Returns about how many bytes a message, or a gap, takes as an event."""
    if isinstance(message, shoal.Gap):
        return GAP_BYTES
    headers = message.headers
    headers_bytes = sum(len(name) + len(value) + HEADER_BYTES for name, value in headers.items()) if headers else 0
    return len(message.body) + headers_bytes + MESSAGE_BYTES
