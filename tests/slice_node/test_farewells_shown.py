"""What describe and the counters show of farewells: where one goes, when it is due, how many were said and refused."""

from __future__ import annotations

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.core.apply import farewells as apply_farewells
from shoal_slice_node.core.dispatch import left_clock

from .core_driver import declare, drop, farewell
from .farewell_driver import AFTER_MS, AFTER_S, GONE, FarewellDriver


@pytest.fixture(params=[False, True], ids=["memory", "delta"])
def core(request: pytest.FixtureRequest) -> FarewellDriver:
    return FarewellDriver(request.param)


def counted(core: FarewellDriver) -> tuple[int, int]:
    return core.state.counters.farewells_said, core.state.counters.farewells_refused


def test_describe_says_where_it_goes_and_when_it_is_due(core: FarewellDriver) -> None:
    assert core.described("anna") is None and core.described("nobody") is None
    core.maintain()
    session = core.consumer("anna")
    core.change(GONE)
    assert core.described("anna") == ("room", AFTER_S, 0), "a session consumes the queue"
    core.wait(3 * AFTER_MS)
    assert core.described("anna") == ("room", AFTER_S, 0)
    core.dispatcher.close(session)
    due_ms = core.wall_ms + AFTER_MS
    assert core.described("anna") == ("room", AFTER_S, due_ms), "its time begins with the next tick"
    core.maintain()
    core.wait(AFTER_MS // 2)
    assert core.described("anna") == ("room", AFTER_S, due_ms)
    session = core.consumer("anna")
    assert core.described("anna") == ("room", AFTER_S, 0)
    core.dispatcher.close(session)
    core.maintain()
    due_ms = core.wall_ms + AFTER_MS
    assert core.wait(AFTER_MS - 1000) == []
    assert core.described("anna") == ("room", AFTER_S, due_ms)
    assert core.wait(1000) == [b"anna went offline"] and core.wall_ms == due_ms
    assert core.described("anna") is None


def test_describe_follows_what_becomes_of_it(core: FarewellDriver) -> None:
    core.maintain()
    core.change(GONE)
    core.maintain()
    core.change(farewell("anna", key="other", body=b"x", after_s=5))
    assert core.described("anna") == ("other", 5, core.wall_ms + 5000)
    core.change(farewell("anna"))
    assert core.described("anna") is None
    core.change(GONE, drop("anna"))
    core.change(declare("anna"))
    assert core.described("anna") is None


def test_after_a_restart_its_time_is_shown_anew_once_the_clock_is_known(core: FarewellDriver) -> None:
    core.change(GONE)
    core.maintain()
    core.wait(AFTER_MS // 2)
    core.restart()
    core.read()
    began_ms = core.wall_ms
    assert core.described("anna") == ("room", AFTER_S, 0)
    core.maintain()
    core.wait(AFTER_MS // 2)
    assert core.described("anna") == ("room", AFTER_S, began_ms + AFTER_MS)


def test_without_a_time_of_its_own_it_is_never_said_before_it_is_shown_to_be(
    core: FarewellDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_clock, "LEFT_TIMES_MAX", 2)
    waiting = {f"q{number}" for number in range(10)}
    for queue in sorted(waiting):
        core.change(declare(queue), farewell(queue, key="room", body=queue.encode(), after_s=AFTER_S))
        core.maintain()
        core.wait(1000)
    assert len(core.dispatcher.farewells) <= 2
    while waiting:
        before = {queue: core.described(queue) for queue in waiting}
        for body in core.wait(1000):
            shown = before[body.decode()]
            assert shown is not None and core.wall_ms >= shown[2] >= AFTER_MS
            waiting.remove(body.decode())
    core.check()


def test_those_said_and_refused_are_counted(core: FarewellDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    core.change(GONE)
    assert counted(core) == (0, 0)
    core.maintain()
    core.wait(AFTER_MS)
    assert counted(core) == (1, 0)
    monkeypatch.setattr(apply_farewells, "FAREWELLS_OF_SLICE_BYTES_MAX", 100)
    assert isinstance(core.refused(farewell("anna", key="room", body=bytes(100))), ResourceExhausted)
    assert counted(core) == (1, 1) and core.described("anna") is None
    core.change(GONE, farewell("anna"), GONE, drop("anna"))
    assert counted(core) == (1, 1), "what is taken back was not said"


def test_one_for_another_slice_counts_once_when_it_sets_out(core: FarewellDriver) -> None:
    core.own(*{core.partition(name) for name in ("room", "@anna", "@reader")} - {core.partition("away")})
    core.change(farewell("anna", key="away", body=b"bye"))
    core.maintain()
    assert core.kept[0] == 1 and counted(core) == (1, 0) and core.described("anna") is None
    box = core.dispatcher.farewells.letters
    letter = box.take(core.now_ms)
    assert letter is not None
    box.sent(letter)
    core.maintain()
    assert core.kept == (0, 0) and counted(core) == (1, 0)


def test_that_of_a_transient_queue_that_expires_is_counted(core: FarewellDriver) -> None:
    core.change(declare("t", expires_after_s=30), farewell("t", key="room", body=b"expired", after_s=1000))
    core.maintain()
    assert core.wait(31_000) == [b"expired"]
    assert counted(core) == (1, 0)
