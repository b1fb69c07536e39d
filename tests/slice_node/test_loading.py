"""A queue under consumption gets its streams in steps that are bounded by done ranges, too."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from shoal_slice_node.core.dispatch import loading
from shoal_slice_node.core.limits import DONE_RANGES_PER_COST, INLINE_STREAMS_MAX, PUMP_TURN_BINDINGS
from shoal_slice_node.core.rows.detail_row import Detail, count_done, decode_detail

from .core_driver import CoreDriver, bind, declare, every_second, publish, unbind, with_done

RANGES = 2_000
KEYS = [f"k{number}" for number in range(60)]
RANGES_PER_STEP = max(INLINE_STREAMS_MAX, PUMP_TURN_BINDINGS) * DONE_RANGES_PER_COST


@pytest.mark.parametrize("unbound", [False, True])
def test_streams_are_made_of_a_bounded_number_of_done_ranges_at_a_time(unbound: bool) -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", *KEYS))
    core.change_all(publish(key, *[b"a"] * 2 * RANGES) for key in KEYS)
    with_done(core, "q", KEYS, every_second(RANGES - 1))
    if unbound:
        core.change(unbind("q", *KEYS))
    decoded, read = [0], [0]
    scan = core.tables.detail.scan

    def scanned(prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for row in scan(prefix, start):
            read[-1] += count_done(row[1])
            yield row

    def decode(row: bytes) -> Detail:
        found = decode_detail(row)
        decoded[-1] += len(found.done)
        return found

    session = core.session()
    with patch.object(loading, "decode_detail", decode), patch.object(core.tables.detail, "scan", scanned):
        core.attach(session, "q", messages=10)
        feed = core.dispatcher.feeds[core.tables.queue_by_name.get(b"q") or b""]
        while feed.loading:
            decoded.append(0)
            read.append(0)
            core.dispatcher.turn()
    assert sum(decoded) == len(KEYS) * (RANGES - 1) and max(decoded) <= RANGES_PER_STEP + RANGES
    assert not unbound or max(read) <= RANGES_PER_STEP + RANGES, "rows that are left for later are not read"
    assert len(feed.streams) == len(KEYS)
    core.pump()
    assert session.waiting
