"""Which key the trimmer looks at next: many bindings, or many keys, hold up no key that is full."""

from __future__ import annotations

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.options import KeyOptions
from shoal_slice_node.core.background.scan_lines import CursorScan, ScanLines
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import CURSOR_SCANS_MAX, SCAN_MEMBERS_PER_TURN, TRIM_DELAY_MS
from shoal_slice_node.core.read.reading import describe_key

from .core_driver import CoreDriver, bind, configure, declare, publish, purge

CAPACITY = 3


class FullDriver(CoreDriver):
    """Queue `worker` is bound to `jobs`, which keeps CAPACITY messages, and consumed."""

    def __init__(self) -> None:
        super().__init__()
        self.change(declare("worker"), bind("worker", "jobs"))
        self.change(configure("jobs", KeyOptions(capacity_messages=CAPACITY)))
        self.worker: Session = self.session()
        self.attach(self.worker, "worker")

    def fill(self) -> None:
        """The key is full, and all of it is acked, which the tables know."""
        low = self.low
        self.change(*(publish("jobs", b"x") for _ in range(CAPACITY)))
        self.take(self.worker)
        self.ack(self.worker, "jobs", low, low + CAPACITY)
        self.flush()

    def is_refused(self, atomic: bool = False) -> bool:
        try:
            return bool(self.change(publish("jobs", b"y"), atomic=atomic).steps[0].refusals)
        except ResourceExhausted:
            return True

    @property
    def low(self) -> int:
        return describe_key(self.state, b"jobs").low

    def turns_until_trimmed(self, most: int) -> int:
        low = self.low
        for turn in range(1, most + 1):
            self.trim()
            if self.low > low:
                return turn
        raise AssertionError(f"nothing is trimmed in {most} turns")


def test_many_keys_with_many_bindings_do_not_hold_up_a_small_one() -> None:
    """Sixteen scans were under way at most, in turn: until one of them ended, no other began."""
    core = FullDriver()
    keys = [f"large-{number}" for number in range(CURSOR_SCANS_MAX + 4)]
    names = [f"m{number}" for number in range(2 * SCAN_MEMBERS_PER_TURN)]
    core.declare(names)
    for number in range(0, len(names), 40):
        core.change(*(bind(name, *keys) for name in names[number : number + 40]))
    core.change_all(publish(key, b"x") for key in keys)
    core.change(purge(names[0]))
    core.now_ms += 2 * TRIM_DELAY_MS
    core.trim()
    core.trim()
    core.fill()
    assert core.turns_until_trimmed(3) <= 2
    assert core.trimmer.pending, "the large ones are still looked at"
    assert not core.is_refused()
    core.check()


@pytest.mark.parametrize("atomic", [False, True])
def test_a_key_that_is_full_is_looked_at_before_many_of_its_size(atomic: bool) -> None:
    core = FullDriver()
    keys = [f"k{number}" for number in range(2 * SCAN_MEMBERS_PER_TURN)]
    core.change(declare("other"))
    core.change_all(bind("other", key) for key in keys)
    core.change_all(publish(key, b"x") for key in keys)
    core.settle()
    core.fill()
    core.change(purge("other"))
    while core.node.turn() or core.node.commit:
        core.commit()
    core.trim()
    assert core.is_refused(atomic)
    assert core.turns_until_trimmed(1) == 1
    assert len(core.trimmer.noted) > SCAN_MEMBERS_PER_TURN // 2
    assert not core.is_refused(atomic)
    core.check()


def test_a_key_that_is_full_is_looked_at_though_nothing_of_it_is_known_to_have_been_acked() -> None:
    """A leader that begins knows the latest advances only, and walks over its keys."""
    core = FullDriver()
    core.fill()
    core.trimmer._advances.clear()
    core.trimmer._touched.clear()
    assert core.is_refused()
    assert core.turns_until_trimmed(1) == 1
    core.check()


def test_lines_take_turns_and_keys_of_one_size_come_in_their_order() -> None:
    lines = ScanLines()
    assert not lines and lines.next_line() is None
    for number in range(CURSOR_SCANS_MAX + 2):
        lines.add(b"large %d" % number, 40_000, urgent=False)
    lines.add(b"small", 1, urgent=False)
    lines.add(b"another", 7, urgent=False)
    found = []
    while b"another" in lines:
        line = lines.next_line()
        assert line is not None
        key_id, scan = lines.take(line)
        found.append(key_id)
        if key_id.startswith(b"large"):
            lines.put_back(line, key_id, scan or CursorScan(1, 2, 1))
    assert found == [b"small", b"large 0", b"another"] and lines.is_scanned(b"large 0")
    for number in range(1, CURSOR_SCANS_MAX):
        line = lines.next_line()
        assert line is not None and lines.take(line) == (b"large %d" % number, None)
        lines.put_back(line, b"large %d" % number, CursorScan(1, 2, 1))
    assert line is not None and lines.take(line)[0] == b"large 0", "as many as may be are under way"


def test_a_key_that_turns_out_larger_goes_on_among_the_larger_ones() -> None:
    lines = ScanLines()
    lines.add(b"grown", 1, urgent=True)
    line = lines.next_line()
    assert line is not None and lines.take(line) == (b"grown", None) and not lines
    lines.put_back(line, b"grown", CursorScan(1, 2, 1, members=100))
    lines.add(b"small", 1, urgent=True)
    order = [lines.next_line() for _ in range(2)]
    assert sorted(one.size for one in order if one is not None) == [0, 2]
    assert lines.is_scanned(b"grown") and not lines.is_scanned(b"small") and not lines.is_scanned(b"none")


def test_a_scan_that_is_hurried_goes_on_where_it_is() -> None:
    lines = ScanLines()
    lines.add(b"k", 1, urgent=False)
    line = lines.next_line()
    assert line is not None
    lines.take(line)
    scan = CursorScan(1, 2, 1, members=5)
    lines.put_back(line, b"k", scan)
    lines.hurry(b"k")
    lines.hurry(b"k")
    line = lines.next_line()
    assert line is not None and line.urgent and lines.take(line) == (b"k", scan) and not lines
