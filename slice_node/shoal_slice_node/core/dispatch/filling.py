"""Reading a key's log for a stream that lags: what is to be given again first, then on from `next`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from shoal_slice_node.core.dispatch.feeds import Attachment
from shoal_slice_node.core.dispatch.streams import Out, Returned, Stream
from shoal_slice_node.core.rows.key_row import KeyRow
from shoal_slice_node.core.rows.log_row import chunk_of, decode_log
from shoal_slice_node.core.state import State
from shoal_slice_node.limits import PARCEL_BYTES_MAX


class Piece(NamedTuple):
    """Offsets low <= o < to of the chunk at `first`, for one attachment."""

    key: bytes
    first: int
    low: int
    to: int
    body_bytes: int
    time_ms: int
    chunk: bytes
    times: int


Pick = Callable[[], Attachment | None]
"""Who gets the next piece; None: nobody has room."""

Give = Callable[[Stream, Attachment, Piece], None]


class Budget:
    """What one turn may still read: a part of a chunk counts as all of it, since all of it travels."""

    __slots__ = ("chunk_bytes", "messages", "rows")

    def __init__(self, rows: int, chunk_bytes: int, messages: int = 1 << 62) -> None:
        self.rows = rows
        self.chunk_bytes = chunk_bytes
        self.messages = messages

    @property
    def spent(self) -> bool:
        return self.rows <= 0 or self.chunk_bytes <= 0 or self.messages <= 0

    def spend(self, piece: Piece) -> None:
        self.rows -= 1
        self.chunk_bytes -= len(piece.chunk) + PARCEL_BYTES_MAX
        self.messages -= piece.to - piece.low


def fill(state: State, stream: Stream, pick: Pick, give: Give, budget: Budget) -> bool:
    """Gives what the stream lacks until it has caught up (True), nobody has room or the budget is spent (False)."""
    found = state.key_by_id(stream.key_id)
    if found is None:
        stream.returned = None
        return True
    key = found[1]
    return _give_again(state, stream, key, pick, give, budget) and _give_next(state, stream, key, pick, give, budget)


def _give_again(state: State, stream: Stream, key: KeyRow, pick: Pick, give: Give, budget: Budget) -> bool:
    while stream.returned:
        first, to, times = stream.returned[0]
        pieces = _pieces(state, stream, key, max(first, key.low), to)
        for piece in pieces:
            if budget.spent:
                return False
            attachment = pick()
            if attachment is None:
                return False
            part = _shorten(piece, budget)._replace(times=times)
            budget.spend(part)
            _hold(stream, attachment, part)
            stream.returned[0] = Returned(part.to, to, times)
            give(stream, attachment, part)
            if part.to < piece.to:
                return False
        del stream.returned[0]
    return True


def _give_next(state: State, stream: Stream, key: KeyRow, pick: Pick, give: Give, budget: Budget) -> bool:
    end = stream.end or key.head
    if stream.next < key.low:
        stream.next = min(key.low, end)
    for piece in _pieces(state, stream, key, stream.next, end):
        if budget.spent or stream.full_of_ranges:
            return False
        attachment = pick()
        if attachment is None:
            return False
        part = _shorten(piece, budget)
        budget.spend(part)
        _hold(stream, attachment, part)
        stream.next = part.to
        give(stream, attachment, part)
        if part.to < piece.to:
            return False
    stream.next = max(stream.next, end)
    return True


def _hold(stream: Stream, attachment: Attachment, piece: Piece) -> None:
    attachment.hold(piece.to - piece.low, piece.body_bytes)
    stream.out.append(Out(piece.low, piece.to, piece.body_bytes, attachment, piece.times))


def _shorten(piece: Piece, budget: Budget) -> Piece:
    """A pull for n messages takes n, whatever the chunk holds."""
    if piece.to - piece.low <= budget.messages:
        return piece
    return piece._replace(to=piece.low + budget.messages)


def _pieces(state: State, stream: Stream, key: KeyRow, low: int, end: int) -> Iterator[Piece]:
    """What is not done in low <= o < end, chunk by chunk."""
    if low >= end:
        return
    for first, row in state.tables.log.read(key.id, key.low, low):
        header = decode_log(row)
        row_end = min(first + header.messages, end)
        position = max(low, first)
        while position < row_end:
            start, position = _undone(stream, position, row_end)
            if start < position:
                times = 1 if start < stream.marked else 0
                yield Piece(
                    stream.key,
                    first,
                    start,
                    position,
                    _share(header.body_bytes, position - start, header.messages),
                    header.time_ms,
                    chunk_of(row),
                    times,
                )
        if row_end >= end:
            return


def _undone(stream: Stream, position: int, end: int) -> tuple[int, int]:
    """The next stretch from `position` on that is not done; empty at `end` if there is none."""
    if not stream.done:
        return position, end
    start = stream.done.end_of(position)
    if start >= end:
        return end, end
    following = stream.done.next_from(start)
    return start, end if following is None else min(end, following)


def _share(body_bytes: int, messages: int, of_messages: int) -> int:
    """Bytes of a part, by its share of messages: windows need no more exactness."""
    return body_bytes if messages == of_messages else body_bytes * messages // of_messages
