"""What the trimmer reads, not how long it takes: a turn is bounded, and who stands lowest is asked first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import LOWEST_NOTED_MEMBERS_MIN, SCAN_MEMBERS_PER_TURN, TRIM_DELAY_MS
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.read.reading import describe_key
from tests.slice_node.core_driver import CoreDriver, bind, declare, drop, every_second, publish, unbind, with_done

MEMBERS = 4 * LOWEST_NOTED_MEMBERS_MIN


class Reads:
    """Counts the rows of `queue` that the trimmer reads."""

    def __init__(self, core: CoreDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        self._core = core
        self.count = 0
        get = core.tables.queue.get

        def counted(key: bytes) -> bytes | None:
            self.count += 1
            return get(key)

        monkeypatch.setattr(core.tables.queue, "get", counted)

    def of_turns(self, turns: int = 1) -> int:
        """What `turns` turns read, each long after the last, with their trims applied."""
        found = 0
        for _ in range(turns):
            self._core.now_ms += 2 * TRIM_DELAY_MS
            before = self.count
            self._core.trim()
            found += self.count - before
        return found


def crowd(core: CoreDriver, key: str, members: int) -> Session:
    """Queues m0, m1... bound to `key`, attached by their number."""
    names = [f"m{number}" for number in range(members)]
    core.declare(names)
    core.change_all(bind(name, key) for name in names)
    session = core.session(window_bytes=1 << 30)
    for number, name in enumerate(names):
        core.attach(session, name, handle=number + 1)
    return session


def low_of(core: CoreDriver, key: str) -> int:
    return describe_key(core.state, key.encode()).low


def acked_by(core: CoreDriver, session: Session, key: str, members: range, low: int, to: int) -> None:
    for number in members:
        core.ack(session, key, low, to, handle=number + 1)
    core.flush()


def test_while_the_lowest_binding_stays_a_look_costs_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    core = CoreDriver()
    session = crowd(core, "k", MEMBERS)
    core.change(publish("k", b"a"))
    core.take(session)
    acked_by(core, session, "k", range(1, MEMBERS), 1, 2)
    reads = Reads(core, monkeypatch)
    assert MEMBERS <= reads.of_turns(3) <= 2 * MEMBERS
    for offset in range(2, 12):
        core.change(publish("k", b"more"))
        core.take(session)
        acked_by(core, session, "k", range(1, MEMBERS), offset, offset + 1)
        assert reads.of_turns() <= 2
    assert low_of(core, "k") == 1
    acked_by(core, session, "k", range(1), 1, 12)
    core.settle()
    assert low_of(core, "k") == 12
    core.check()


@pytest.mark.parametrize("how", ["ended", "discarded", "dropped"])
def test_the_lowest_binding_goes(how: str) -> None:
    core = CoreDriver()
    session = crowd(core, "k", MEMBERS)
    core.change(publish("k", b"a"))
    core.take(session)
    acked_by(core, session, "k", range(1, MEMBERS), 1, 2)
    core.settle()
    if how == "dropped":
        core.change(drop("m0"))
    else:
        core.change(unbind("m0", "k", discard=how == "discarded"))
    core.settle()
    assert low_of(core, "k") == (1 if how == "ended" else 2)
    if how == "ended":
        core.change(publish("k", b"b"))
        core.take(session)
        acked_by(core, session, "k", range(1, MEMBERS), 2, 3)
        core.settle()
        assert low_of(core, "k") == 1, "its backlog is kept"
        acked_by(core, session, "k", range(1), 1, 2)
        core.settle()
        assert low_of(core, "k") == 3
    core.check()


def test_a_turn_is_bounded_however_many_keys_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    core = CoreDriver()
    keys = [f"k{number}" for number in range(3 * SCAN_MEMBERS_PER_TURN)]
    core.change(declare("q", "slow"))
    core.change_all(bind(queue, key) for key in keys for queue in ("q", "slow"))
    core.change_all(publish(key, b"a") for key in keys)
    session = core.session(window_bytes=1 << 30)
    core.attach(session, "q", messages=1 << 20)
    core.take(session)
    for key in keys:
        core.ack(session, key, 1, 2)
    core.flush()
    reads = Reads(core, monkeypatch)
    counts = 0
    count = core.tables.binding.count

    def counted(group: bytes) -> int:
        nonlocal counts
        counts += 1
        return count(group)

    monkeypatch.setattr(core.tables.binding, "count", counted)
    turns = 0
    while core.trimmer.pending:
        counts = 0
        assert reads.of_turns() <= SCAN_MEMBERS_PER_TURN
        assert counts <= 2 * SCAN_MEMBERS_PER_TURN
        turns += 1
    assert turns < 30


def test_a_large_key_does_not_hold_up_small_ones() -> None:
    core = CoreDriver()
    members = 10 * SCAN_MEMBERS_PER_TURN
    names = [f"m{number}" for number in range(members)]
    core.declare([*names, "q"])
    core.change_all([*(bind(name, "large") for name in names), bind("q", "large"), bind("q", "small")])
    core.change(publish("large", b"a"))
    session = core.session()
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "large", 1, 2)
    core.flush()
    core.now_ms += 2 * TRIM_DELAY_MS
    assert core.trim() == []
    core.change(publish("small", b"a"))
    core.take(session)
    core.ack(session, "small", 1, 2)
    core.flush()
    core.now_ms += 2 * TRIM_DELAY_MS
    core.trim()
    assert low_of(core, "small") == 2
    assert core.trimmer.pending, "the large one is still looked at"


def test_what_moves_during_a_look_is_looked_at_again() -> None:
    core = CoreDriver()
    members = 3 * SCAN_MEMBERS_PER_TURN
    session = crowd(core, "k", members)
    core.change(publish("k", b"a"))
    core.take(session)
    acked_by(core, session, "k", range(members // 2), 1, 2)
    core.now_ms += 2 * TRIM_DELAY_MS
    assert core.trim() == []
    acked_by(core, session, "k", range(members // 2, members), 1, 2)
    core.settle()
    assert low_of(core, "k") == 2
    core.check()


def refuse_to_decode(flat: Sequence[int]) -> Ranges:
    raise AssertionError(f"{len(flat) // 2} done ranges are decoded")


@pytest.mark.parametrize("ended", [False, True])
def test_a_look_decodes_no_done_ranges(monkeypatch: pytest.MonkeyPatch, ended: bool) -> None:
    core = CoreDriver()
    core.change(declare("q", "r"), bind("q", "k"), bind("r", "k"))
    core.change(publish("k", *[b""] * 10))
    for queue in ("q", "r"):
        with_done(core, queue, ["k"], every_second(3))
    if ended:
        core.change(unbind("q", "k"), unbind("r", "k"))
    monkeypatch.setattr(Ranges, "of_sorted", refuse_to_decode)
    core.settle()
    assert low_of(core, "k") == 1


@pytest.mark.parametrize("ended", [0, 40, 150])
@pytest.mark.parametrize("count", [40, 150])
def test_a_dropped_queue_gives_up_its_bindings_without_decoding_their_done_ranges(
    monkeypatch: pytest.MonkeyPatch, count: int, ended: int
) -> None:
    core = CoreDriver()
    keys = [f"k{number}" for number in range(count)]
    core.change(declare("q", "r"), bind("q", *keys), bind("r", *keys))
    core.change_all(publish(key, *[b""] * 10) for key in keys)
    with_done(core, "q", keys, every_second(3))
    if ended:
        core.change(unbind("q", *keys[:ended]))
    with monkeypatch.context() as patched:
        patched.setattr(Ranges, "of_sorted", refuse_to_decode)
        core.change(drop("q"))
        core.settle()
    assert not list(core.tables.detail.scan()) and not list(core.tables.ended.scan())
    assert describe_key(core.state, b"k0").exists
    core.check()
