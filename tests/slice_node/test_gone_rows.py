"""Rows that were deleted since the last checkpoint: scans pass many that follow each other once, and see all others."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice
from random import Random

import pytest

from shoal_slice_node.core.limits import GONE_RUN_MIN
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.delta_rows import DeltaRows
from shoal_slice_node.core.tables.gone import Gone
from shoal_slice_node.core.tables.memory_tables import MemoryRows
from tests.fuzz.small_limits import patched

from .memory_base import MemoryBase

QUEUE = b"queue-01"


class Passed:
    """See delta_rows.BaseRows. `rows`: how many rows scans have read."""

    unfit_key_error: type[Exception] = KeyError

    def __init__(self) -> None:
        self.rows = 0
        self.replace({})

    def replace(self, having: dict[bytes, bytes]) -> None:
        """Has these rows from now on."""
        self._rows = MemoryRows()
        for key, value in having.items():
            self._rows.put(key, value)
        self.put, self.get, self.keys, self.entries = (
            self._rows.put,
            self._rows.get,
            self._rows.keys,
            self._rows.entries,
        )

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for one in self._rows.scan(prefix, start):
            self.rows += 1
            yield one

    def scan_beside(
        self, covered: Container[bytes], prefix: bytes, start: bytes
    ) -> Iterator[tuple[bytes, bytes | None]]:
        yield from self.scan(prefix, start)


def row(number: int) -> bytes:
    return QUEUE + b"%08d" % number


def test_what_is_taken_in_many_steps_from_the_first_row_on_is_passed_once() -> None:
    """The reclaim of a queue with 50,000 details passed all that it had taken with each step, and a drop if empty of it
    cost 23 ms each time."""
    base, many = Passed(), 3_000
    for number in range(many):
        base.put(row(number), b"x")
    rows = DeltaRows(base, len(QUEUE))
    taken = 0
    while some := [key for key, _ in islice(rows.scan(QUEUE), 48)]:
        for key in some:
            rows.delete(key)
        taken += len(some)
    assert taken == many and base.rows < 5 * many
    before = base.rows
    for _ in range(100):
        assert next(rows.scan(QUEUE), None) is None
    assert base.rows - before < 100 * GONE_RUN_MIN


def test_a_run_behind_other_rows_is_passed_once() -> None:
    """A walk over histories passed 58,000 deleted rows again each second."""
    base = Passed()
    for number in range(2_000):
        base.put(row(number), b"x")
    rows = DeltaRows(base)
    for number in range(2_000):
        if number % 500:
            rows.delete(row(number))
    assert [key for key, _ in rows.scan()] == [row(number) for number in range(0, 2_000, 500)]
    before = base.rows
    assert len(list(rows.scan(QUEUE, row(3)))) == 3
    assert base.rows - before < 100


@pytest.mark.parametrize("places", [[0], [1_500], [2_999], [0, 1_500, 2_999], [1, 3, 5, 7]])
def test_rows_that_come_and_go_among_deleted_ones_cost_no_pass_over_all(places: list[int]) -> None:
    """A row that came at the front of a run, or in its middle, and went again: each look passed the whole run anew. A
    frame of 12 KB with 110 such rounds stopped a slice for 37 s."""
    base = Passed()
    for number in range(3_000):
        base.put(row(number), b"x")
    rows = DeltaRows(base, len(QUEUE))
    for number in range(3_000):
        rows.delete(row(number))
    assert next(rows.scan(QUEUE), None) is None
    before = base.rows
    for _ in range(100):
        for place in places:
            rows.put(row(place), b"again")
        assert [key for key, _ in rows.scan(QUEUE)] == [row(place) for place in places]
        for place in places:
            rows.delete(row(place))
            assert next(rows.scan(QUEUE), (b"", b""))[0] in {b"", *map(row, places)}
    assert base.rows - before < 100 * 10 * (len(places) + 1)


@pytest.mark.parametrize("seed", range(30))
def test_scans_see_all_rows_that_there_are(seed: int) -> None:
    """Also rows that came while a scan was under way, at the next one."""
    random = Random(seed)
    with patched({"GONE_RUN_MIN": random.choice((1, 2, 5))}):
        base = MemoryBase()
        delta = Delta(base)
        tables = (delta.detail, delta.history)
        models: tuple[dict[bytes, bytes], ...] = ({}, {})

        def change() -> None:
            which = random.randrange(2)
            key = b"queue-0%d%03d" % (random.randrange(2), random.randrange(60))
            if random.random() < 0.6:
                if models[which].pop(key, None) is not None:
                    tables[which].delete(key)
            elif key in models[which]:
                models[which][key] = b"again"
                tables[which].put(key, b"again")
            else:
                models[which][key] = b"new"
                random.choice((tables[which].put, tables[which].insert))(key, b"new")

        for _ in range(400):
            for _ in range(random.choice((1, 5, 40))):
                change()
            which = random.randrange(2)
            prefix = random.choice((b"", b"queue-00", b"queue-01"))
            start = random.choice((b"", prefix + b"%03d" % random.randrange(60)))
            scan = tables[which].scan(prefix, start)
            for _ in islice(scan, random.randrange(10)):
                change()
            found = list(tables[which].scan(prefix, start))
            assert found == [
                one for one in sorted(models[which].items()) if one[0] >= start and one[0].startswith(prefix)
            ]
            if random.random() < 0.1:
                delta.freeze()
                for _ in range(random.choice((0, 20))):
                    change()
                random.choice((base.checkpoint, base.melt))(delta)


def test_rows_that_the_checkpointer_wrote_itself_are_seen() -> None:
    """It writes hints of emptied keys: one may lie where rows were deleted before."""
    base = Passed()
    for number in range(3 * GONE_RUN_MIN):
        base.put(row(number), b"x")
    rows = DeltaRows(base)
    for number in range(3 * GONE_RUN_MIN):
        rows.delete(row(number))
    assert not list(rows.scan())
    rows.freeze()
    base.replace({row(GONE_RUN_MIN): b"hint"})
    rows.drop_frozen()
    assert [key for key, _ in rows.scan()] == [row(GONE_RUN_MIN)]


def test_runs_join_and_a_row_that_comes_makes_two_of_one() -> None:
    gone = Gone()
    for number in range(2_000):
        gone.note(b"%05d" % (10 * number), b"%05d" % (10 * number + 5))
    assert len(gone) == 2_000 and gone.past(b"00000x") == b"00005"
    gone.note(b"00005", b"00008")
    assert gone.past(b"00000") == b"00008" and len(gone) == 2_000, "one run"
    gone.came(b"00002")
    assert gone.past(b"00000") == b"00002" and gone.past(b"00002") == b"00002" and gone.past(b"00003") == b"00008"
    gone.came(b"00000")
    assert gone.past(b"00000") == b"00000" and gone.past(b"00001") == b"00002" and len(gone) == 2_001
    gone.note(b"00000", b"19999")
    assert gone.past(b"00000") == b"19999" and len(gone) == 1


def test_many_runs_between_rows_are_passed_once() -> None:
    """With one run more than were remembered each scan passed all deleted rows: 20 frames of 15 bytes took 4 s."""
    base, every = Passed(), 2 * GONE_RUN_MIN
    for number in range(400 * every):
        base.put(row(number), b"x")
    rows = DeltaRows(base, len(QUEUE))
    for number in range(400 * every):
        if number % every:
            rows.delete(row(number))
    assert len(list(rows.scan(QUEUE))) == 400
    before = base.rows
    assert len(list(rows.scan(QUEUE))) == 400
    assert base.rows - before <= 400 * 3
