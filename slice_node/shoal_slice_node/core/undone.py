"""The parts of a key's log that a binding has not done, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.key_row import KeyRow
from shoal_slice_node.core.rows.log_row import LogRow, decode_log
from shoal_slice_node.core.tables import Logs


class Undone(NamedTuple):
    """Offsets low <= o < to of the log row at `first`."""

    first: int
    low: int
    to: int
    header: LogRow
    row: bytes


def undone(logs: Logs, key: KeyRow, low: int, end: int, done: Ranges | None) -> Iterator[Undone]:
    """What of low <= o < end is kept and not done. Yields one at a time: a backlog may be of any size."""
    if low >= end:
        return
    for first, row in logs.read(key.id, key.low, low):
        header = decode_log(row)
        row_end = min(first + header.messages, end)
        position = max(low, first)
        while position < row_end:
            start, position = _next_stretch(done, position, row_end)
            if start < position:
                yield Undone(first, start, position, header, row)
        if row_end >= end:
            return


def _next_stretch(done: Ranges | None, position: int, end: int) -> tuple[int, int]:
    """The next from `position` on that is not done; empty at `end` if there is none."""
    if not done:
        return position, end
    start = done.end_of(position)
    if start >= end:
        return end, end
    following = done.next_from(start)
    return start, end if following is None else min(end, following)
