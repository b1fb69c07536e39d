"""Gathers acks and sends them as ranges: one Ack for all consumers of a key that are done with the same offsets.

A consumer is a handle (attached) or a queue's name (pulled). Bounded by what was delivered and not acked, so `ack`
never waits. Not here: remembering what was acked (seen.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from shoal.frames import AcksFrame
from shoal.limits import ACK_BYTES_MAX, ACK_FRAMES_MAX, ACK_HANDLES_MAX, ACK_LINGER_S
from shoal.slice_session import SliceSession
from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire

Consumer = int | bytes


class AckGather:
    """Ranges of acked offsets, merged where they touch. Pure."""

    def __init__(self) -> None:
        self._blocks: list[tuple[bytes, int, int, Sequence[Consumer]]] = []
        """(key, from, to, consumers), acked together."""
        self._last_block: dict[bytes, int] = {}
        """Key -> its last block in `_blocks`, for the next to be joined to."""
        self._singles: dict[tuple[bytes, Consumer], tuple[int, int]] = {}
        """The newest range of each consumer that acks alone."""

    def __bool__(self) -> bool:
        return bool(self._blocks or self._singles)

    def add(self, key: bytes, first: int, end: int, consumers: Sequence[Consumer]) -> None:
        if len(consumers) == 1:
            self._add_single(key, first, end, consumers[0])
            return
        index = self._last_block.get(key)
        if index is not None:
            _, low, high, same = self._blocks[index]
            if high == first and (same is consumers or same == consumers):
                self._blocks[index] = (key, low, end, same)
                return
        self._last_block[key] = len(self._blocks)
        self._blocks.append((key, first, end, consumers))

    def _add_single(self, key: bytes, first: int, end: int, consumer: Consumer) -> None:
        entry = (key, consumer)
        low, high = self._singles.get(entry, (first, first))
        if high != first:
            self._blocks.append((key, low, high, (consumer,)))
            low = first
        self._singles[entry] = (low, end)

    def take(self) -> Iterator[list[wire.Ack]]:
        """All of it, a frame's worth at a time."""
        together: dict[tuple[bytes, int, int], list[Consumer]] = {}
        for (key, consumer), (low, high) in self._singles.items():
            together.setdefault((key, low, high), []).append(consumer)
        blocks = [*self._blocks, *((*span, consumers) for span, consumers in together.items())]
        self._singles, self._blocks, self._last_block = {}, [], {}
        frame: list[wire.Ack] = []
        handles = size_bytes = 0
        for key, low, high, consumers in blocks:
            ack = _ack(key, low, high, consumers)
            ack_bytes = ack.ByteSize() + 8
            if frame and (handles + len(consumers) > ACK_HANDLES_MAX or size_bytes + ack_bytes > ACK_BYTES_MAX):
                yield frame
                frame, handles, size_bytes = [], 0, 0
            frame.append(ack)
            handles += len(consumers)
            size_bytes += ack_bytes
        if frame:
            yield frame


def _ack(key: bytes, low: int, high: int, consumers: Sequence[Consumer]) -> wire.Ack:
    ack = wire.Ack(key=key, to=high)
    ack.low = low
    if isinstance(consumers[0], int):
        ack.handles.extend(consumers)  # type: ignore[arg-type]  # all of one kind
    else:
        ack.queues.extend(consumers)  # type: ignore[arg-type]
    return ack


class AckSender:
    """Sends one session's acks after ACK_LINGER_S, a few frames at a time."""

    def __init__(self, session: SliceSession, on_error: Callable[[ShoalError], None]) -> None:
        self._session = session
        self._on_error = on_error
        self._gather = AckGather()
        self._frames: list[list[wire.Ack]] = []
        self._in_flight = 0
        self._timer: asyncio.TimerHandle | None = None
        self._taken = 0
        """How often the gather was taken; each time its frames have that number."""
        self._unanswered: Counter[int] = Counter()
        """Frames by number; none is zero."""
        self._answer_came = asyncio.Event()

    def add(self, key: bytes, first: int, end: int, consumers: Sequence[Consumer]) -> None:
        self._gather.add(key, first, end, consumers)
        if self._timer is None and self._in_flight < ACK_FRAMES_MAX:
            self._timer = asyncio.get_running_loop().call_later(ACK_LINGER_S, self._send)

    async def flush(self) -> None:
        """Until the slice has every ack given so far. It ends although more are given all the time."""
        self._send()
        last = self._taken + bool(self._gather)
        while self._taken < last or any(number <= last for number in self._unanswered):
            self._answer_came.clear()
            await self._answer_came.wait()

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._frames and self._gather:
            self._frames = list(self._gather.take())[::-1]
            self._taken += 1
            self._unanswered[self._taken] = len(self._frames)
        while self._frames and self._in_flight < ACK_FRAMES_MAX:
            self._in_flight += 1
            self._session.send(AcksFrame(self._frames.pop(), partial(self._answered, self._taken)))

    def _answered(self, number: int, error: ShoalError | None) -> None:
        self._in_flight -= 1
        self._unanswered[number] -= 1
        if not self._unanswered[number]:
            del self._unanswered[number]
        self._answer_came.set()
        if error is not None:
            self._on_error(error)
        if (self._frames or self._gather) and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(0, self._send)
