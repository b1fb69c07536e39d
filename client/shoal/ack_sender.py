"""Sends the acks of one session: when, how many frames at once, and again where the slice had no room.

`ack` never waits. Not here: which ranges travel together (core/acks.py), which messages were handed out and acked
(core/repeats.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from shoal.core.acks import AckConsumer, Acked, AckGather, at_places, framed, to_wire, without_consumers, without_places
from shoal.core.frames import AcksFrame
from shoal.core.pending_acks import PendingAcks
from shoal.limits import ACK_AGAIN_S, ACK_FRAMES_MAX, ACK_LINGER_S
from shoal.slice_session import SliceSession
from shoal_contract.errors import ResourceExhausted, ShoalError


class AckSender:
    """Sends one session's acks after ACK_LINGER_S, a few frames at a time.

    `on_answered`: called with acks that the slice has durably. `on_error`: called when the slice refuses acks and
    repeating them would not help. Acks that it has no room for are sent again. `of_stream`: the acks name handles, and
    `stream_ended` returns those that a lost stream left unanswered; otherwise these are sent again on the next stream.
    `asks`: says whether it matters if some of these acks come too late to have an effect. `on_lacking`: called with the
    acks of which that is so for some message, instead of `on_answered`. `resets_seen`: returns how many resets this
    stream has told so far; the caller calls `forget` right behind each, so that what is sent later is not of a life
    before it. None: it is not said.
    """

    def __init__(
        self,
        session: SliceSession,
        on_error: Callable[[ShoalError], None],
        on_answered: Callable[[Sequence[Acked]], None] = lambda blocks: None,
        of_stream: bool = False,
        asks: Callable[[Sequence[Acked]], bool] = lambda blocks: False,
        on_lacking: Callable[[Sequence[Acked]], None] = lambda blocks: None,
        resets_seen: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._session = session
        self._asks = asks
        self._on_lacking = on_lacking
        self._resets_seen = resets_seen
        self._on_error = on_error
        self._on_answered = on_answered
        self._of_stream = of_stream
        self.pending_acks = PendingAcks(self.pending)
        """Finds those of the acks that are not answered which name a key and a consumer."""
        self._gather = AckGather()
        self._frames: list[list[Acked]] = []
        """Frames taken from the gather and not sent yet; the next to send is at the end."""
        self._in_flight: dict[int, list[Acked]] = {}
        """Frames that were sent and not answered, by a number of their own. A refused frame that will be sent again
        is among them. At most ACK_FRAMES_MAX."""
        self._frames_sent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._taken = 0
        """How often the gather was taken. The frames of each take have its number."""
        self._unanswered: Counter[int] = Counter()
        """Number of a take -> how many of its frames are unanswered; never zero."""
        self._streams_ended = 0
        self._progress = asyncio.Event()

    def __bool__(self) -> bool:
        """Returns whether some acks are not answered."""
        return bool(self._gather or self._frames or self._in_flight)

    def add(self, key: bytes, first: int, end: int, consumers: Sequence[AckConsumer]) -> None:
        """Takes an ack: offsets first <= offset < end of a key are done for these consumers. It is sent a little
        later."""
        self._gather.add(key, first, end, consumers)
        self.pending_acks.add(key, first, end, consumers)
        if self._timer is None and len(self._in_flight) < ACK_FRAMES_MAX:
            self._timer = asyncio.get_running_loop().call_later(ACK_LINGER_S, self.send)

    def pending(self) -> Iterator[Acked]:
        """Yields the acks that are not answered yet."""
        for frame in (*self._in_flight.values(), *self._frames):
            yield from frame
        yield from self._gather.blocks()

    async def flush(self) -> bool:
        """Waits until the slice has every ack given so far, or their stream is lost; returns False then. Ends even if
        more acks keep coming."""
        self.send()
        last, streams_ended = self._taken + bool(self._gather), self._streams_ended
        while (self._taken < last and self._waiting) or any(number <= last for number in self._unanswered):
            self._progress.clear()
            await self._progress.wait()
        return streams_ended == self._streams_ended

    async def sent(self) -> None:
        """Waits until every ack given so far is on its way, so that frames sent from now on come after it."""
        self.send()
        last = self._taken + bool(self._gather)
        while (self._taken < last and self._waiting) or (self._taken == last and self._frames):
            self._progress.clear()
            await self._progress.wait()

    @property
    def _waiting(self) -> bool:
        """Returns whether some acks are not sent yet."""
        return bool(self._frames or self._gather)

    def forget(self, consumers: Iterable[AckConsumer]) -> None:
        """Drops the unsent acks of these consumers: their queue's life ended, and another one may have begun. Those in
        flight are not sent again, and their answers end nothing of the next life."""
        gone = set(consumers)
        for frame, blocks in self._in_flight.items():
            self._in_flight[frame] = without_consumers(blocks, gone)
        frames = [without_consumers(frame, gone) for frame in self._frames]
        self._frames = [frame for frame in frames if frame]
        for _ in range(len(frames) - len(self._frames)):
            self._settle(self._taken)
        for block in without_consumers(self._gather.take(), gone):
            self._gather.add(*block)
        self.pending_acks.clear()
        self._progress.set()

    def stream_ended(self) -> list[Acked]:
        """Ends a lost stream: returns the unanswered acks, and forgets them."""
        lost = [block for frame in (*self._in_flight.values(), *self._frames) for block in frame]
        lost += self._gather.take()
        self._streams_ended += 1
        self._in_flight.clear()
        self._frames.clear()
        self._unanswered.clear()
        self.pending_acks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._progress.set()
        return lost

    def send(self) -> None:
        """Sends what was given so far, as far as frames may be under way, so that frames sent from now on come after
        it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._frames and self._gather:
            self._frames = list(framed(self._gather.take()))[::-1]
            self._taken += 1
            self._unanswered[self._taken] = len(self._frames)
        while self._frames and len(self._in_flight) < ACK_FRAMES_MAX:
            self._send_frame(self._frames.pop(), self._taken)
        self._progress.set()

    def _send_frame(self, blocks: list[Acked], number: int) -> None:
        self._frames_sent += 1
        self._in_flight[self._frames_sent] = blocks
        done, asks = partial(self._answered, self._frames_sent, number, blocks), partial(self._asks, blocks)
        acks = [to_wire(block) for block in blocks]
        self._session.send(AcksFrame(acks, done, self._of_stream, asks, self._resets_seen()))

    def _answered(
        self, frame: int, number: int, sent: list[Acked], error: ShoalError | None, places: Sequence[int] = ()
    ) -> None:
        """Takes in the answer to a frame. `places`: those of the acks, as they were sent, that had no effect."""
        blocks = self._in_flight.get(frame)
        if blocks is None:
            return  # The frame's stream is lost.
        if isinstance(error, ResourceExhausted):
            asyncio.get_running_loop().call_later(ACK_AGAIN_S, self._again, frame, number)
            return
        del self._in_flight[frame]
        self.pending_acks.answered(blocks)
        self._settle(number)
        if error is None:
            lacking = at_places(sent, places) if places else []
            if lacking and blocks is not sent:  # Lives have ended since: nothing of theirs is lacking.
                left = {consumer for block in blocks for consumer in block.consumers}
                lacking = without_consumers(lacking, {one for block in sent for one in block.consumers} - left)
            self._on_answered(without_places(sent, places) if lacking and blocks is sent else blocks)
            if lacking:
                self._on_lacking(lacking)
        else:
            self._on_error(error)
        self._go_on()

    def _go_on(self) -> None:
        """Wakes the flushes, and sends what waited for a frame to be answered."""
        self._progress.set()
        if self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(0, self.send)

    def _settle(self, number: int) -> None:
        self._unanswered[number] -= 1
        if not self._unanswered[number]:
            del self._unanswered[number]

    def _again(self, frame: int, number: int) -> None:
        """Sends a frame again: the slice had no room (a full disk) and took nothing of it."""
        blocks = self._in_flight.pop(frame, None)
        if blocks:
            self._send_frame(blocks, number)
        elif blocks is not None:  # The lives that it acked messages of have ended.
            self._settle(number)
            self._go_on()
