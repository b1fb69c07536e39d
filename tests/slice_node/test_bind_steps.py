"""Binds and unbinds of bindings with many done ranges: a step of their record touches a bounded number of ranges."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from shoal_contract.journal_record import Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.limits import DONE_RANGES_PER_COST
from shoal_slice_node.core.rows.detail_row import count_done

from .core_driver import CoreDriver, bind, declare, every_second, publish, unbind, with_done

KEYS = [f"k{number}" for number in range(12)]
RANGES = 500


def ranges_of_steps(core: CoreDriver, *steps: wire.Step) -> list[int]:
    """How many done ranges were written in each step of a record."""
    payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), wire.Change(steps=steps).SerializeToString())
    found, table = [0], core.tables.detail
    put = table.put

    def counted(key: bytes, row: bytes) -> None:
        found[-1] += count_done(row)
        put(key, row)

    with patch.object(table, "put", counted):
        for _ in core.engine.in_steps(Record(Kind.CHANGE, 0, core.state.lsn + 1, 1, core.now_ms, payload)):
            found.append(0)
    return found


@pytest.mark.parametrize("together", [True, False])
def test_a_step_touches_the_done_ranges_of_one_large_binding(together: bool) -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", *KEYS))
    core.change(*(publish(key, *([b"x"] * 2 * RANGES * 2)) for key in KEYS))
    with_done(core, "q", KEYS, every_second(RANGES))
    groups = [KEYS] if together else [[key] for key in KEYS]
    found = ranges_of_steps(core, *(step for keys in groups for step in (unbind("q", *keys), bind("q", *keys))))
    assert sum(found) == 2 * RANGES * len(KEYS) and max(found) <= RANGES + 1
    core.check()


def test_a_step_has_several_bindings_with_few_done_ranges() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", *KEYS))
    core.change(*(publish(key, *([b"x"] * 100)) for key in KEYS))
    with_done(core, "q", KEYS, every_second(DONE_RANGES_PER_COST))
    found = ranges_of_steps(core, unbind("q", *KEYS))
    assert [ranges for ranges in found if ranges] == [8 * DONE_RANGES_PER_COST, 4 * DONE_RANGES_PER_COST]
    core.check()
