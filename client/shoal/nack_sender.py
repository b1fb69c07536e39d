"""Sends the nacks of one session: those of one turn of the event loop with the same delay travel together.

A nack never waits. It is lost with its stream: the slice gives what was out again then, without the delay. Not here:
which messages may be nacked (inbox_slice.py, core/repeats.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from shoal.core.acks import AckConsumer, Acked, AckGather, framed, to_wire
from shoal.core.frames import Frame, NacksFrame
from shoal.core.numbered_nacks import NumberedNacks
from shoal.core.pending_acks import PendingAcks
from shoal.limits import ACK_AGAIN_S, ATTACH_QUEUES_MAX
from shoal.slice_session import SliceSession
from shoal_contract.errors import ResourceExhausted, ShoalError


class NackSender:
    """Sends nacks. What is not answered is bounded by what was delivered. `on_error`: called when the slice refuses
    nacks and repeating them would not help. Nacks that it has no room for are sent again. `resets_seen`: returns how
    many resets this stream has told so far; `send` must be called before each, so that what is sent later is not of a
    life before it. None: it is not said."""

    def __init__(
        self,
        session: SliceSession,
        on_error: Callable[[ShoalError], None],
        resets_seen: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._session = session
        self._on_error = on_error
        self._resets_seen = resets_seen
        self._numbered = NumberedNacks()
        self._gathers: dict[int | None, AckGather] = {}
        """What is to be sent, by its delay in milliseconds; None: no program was given it."""
        self._unanswered: dict[int, list[Acked]] = {}
        """Frames that were sent on this stream and not answered, or will be sent again, by a number of their own."""
        self.pending_nacks = PendingAcks(self._pending)
        """Finds those of the nacks without a number that are not answered."""
        self.pending_unseen = PendingAcks(self._pending_unseen)
        """Finds those of them whose messages no program was given."""
        self._unseen: set[int] = set()
        """The numbers of their frames."""
        self._frames_sent = 0
        self._settled = asyncio.Event()

    def add(self, key: bytes, first: int, end: int, consumers: Sequence[AckConsumer], delay_ms: int | None) -> None:
        """Takes a nack: offsets first <= offset < end of a key are to be given again, no earlier than after the delay.
        None: at once, and their delivery does not count, as no program was given them."""
        self._send_soon()
        gather = self._gathers.get(delay_ms)
        if gather is None:
            gather = self._gathers[delay_ms] = AckGather()
        gather.add(key, first, end, consumers)
        self.pending_nacks.add(key, first, end, consumers)
        if delay_ms is None:
            self.pending_unseen.add(key, first, end, consumers)

    def add_numbered(self, key: bytes, first: int, end: int, handle: int) -> int:
        """Takes a nack as `add` does, without a delay. Returns its number, which deliveries tell that were put on their
        way after the slice looked at it."""
        self._send_soon()
        return self._numbered.add(key, first, end, handle)

    def _send_soon(self) -> None:
        if not (self._gathers or self._numbered):
            asyncio.get_running_loop().call_soon(self.send)

    def send(self) -> None:
        """Sends what was given so far, so that frames sent from now on come after it."""
        for number, blocks in self._numbered.take():
            self._session.send(self._frame(blocks, None, number=number))
        gathers, self._gathers = self._gathers, {}
        for delay_ms, gather in gathers.items():
            for blocks in framed(gather.take()):
                self._session.send(self._frame(blocks, delay_ms))

    def stop(self, handles: Sequence[int]) -> None:
        """Asks for nothing more for these handles. What was nacked before may still come again here."""
        self.send()
        for frame in self.stop_frames(handles):
            self._session.send(frame)

    def stop_frames(self, handles: Sequence[int]) -> list[Frame]:
        """Returns the frames that ask for nothing more for these handles; the caller sends them."""
        starts = range(0, len(handles), ATTACH_QUEUES_MAX)
        return [self._frame([], 0, handles[start : start + ATTACH_QUEUES_MAX]) for start in starts]

    def __bool__(self) -> bool:
        """Returns whether some nacks have no answer yet."""
        return bool(self._unanswered or self._gathers or self._numbered)

    async def flush_all(self) -> None:
        """Does as `flush`, also for nacks that are given meanwhile."""
        while self:
            await self.flush()

    async def flush(self) -> None:
        """Waits until the slice has every nack given so far, or their stream is lost."""
        self.send()
        last = self._frames_sent
        while any(number <= last for number in self._unanswered):
            self._settled.clear()
            await self._settled.wait()

    def _pending(self) -> Iterator[Acked]:
        for blocks in self._unanswered.values():
            yield from blocks
        for gather in self._gathers.values():
            yield from gather.blocks()

    def _pending_unseen(self) -> Iterator[Acked]:
        for frame in self._unseen:
            yield from self._unanswered[frame]
        if None in self._gathers:
            yield from self._gathers[None].blocks()

    def stream_ended(self) -> None:
        """Forgets what a lost stream left unanswered: all that was out on it comes again."""
        self.pending_nacks.clear()
        self.pending_unseen.clear()
        self._unseen.clear()
        self._gathers.clear()
        self._numbered.clear()
        self._unanswered.clear()
        self._settled.set()

    def _frame(
        self, blocks: list[Acked], delay_ms: int | None, stop: Sequence[int] = (), number: int = 0
    ) -> NacksFrame:
        self._frames_sent += 1
        sent, seen = self._frames_sent, self._resets_seen()
        self._unanswered[sent] = [] if number else blocks
        if delay_ms is None and blocks and not number:
            self._unseen.add(sent)

        def frame() -> NacksFrame:
            done = partial(self._answered, sent, again)
            return NacksFrame([to_wire(block) for block in blocks], delay_ms, done, stop, number, seen)

        def again() -> None:
            if sent in self._unanswered:  # Else the frame's stream is lost.
                self._session.send(frame())

        return frame()

    def _answered(self, sent: int, send_again: Callable[[], None], error: ShoalError | None) -> None:
        if sent not in self._unanswered:
            return  # The frame's stream is lost.
        if isinstance(error, ResourceExhausted):
            asyncio.get_running_loop().call_later(ACK_AGAIN_S, send_again)
            return
        blocks = self._unanswered.pop(sent)
        self.pending_nacks.answered(blocks)
        if sent in self._unseen:
            self._unseen.remove(sent)
            self.pending_unseen.answered(blocks)
        self._settled.set()
        if error is not None:
            self._on_error(error)
