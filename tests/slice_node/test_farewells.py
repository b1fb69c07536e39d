"""Farewells: published once no session has consumed their queue for a time, never earlier, and once."""

from __future__ import annotations

import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import (
    NO_PRODUCER,
    ChangeHead,
    Kind,
    decode_farewells,
    encode_change,
)
from shoal_slice_node.core.dispatch import left_clock
from shoal_slice_node.core.node.commit import Item

from .core_driver import configure, declare, drop, farewell, publish, raises
from .farewell_driver import AFTER_MS, GONE, FarewellDriver


@pytest.fixture(params=[False, True], ids=["memory", "delta"])
def core(request: pytest.FixtureRequest) -> FarewellDriver:
    return FarewellDriver(request.param)


def test_it_is_published_once_the_last_session_has_been_gone_for_its_time(core: FarewellDriver) -> None:
    one, other = core.consumer("anna"), core.consumer("anna")
    core.change(GONE)
    core.maintain()
    core.dispatcher.close(one)
    assert core.wait(2 * AFTER_MS) == []
    core.check()
    core.dispatcher.detach(other, 1)
    core.maintain()  # A tick tells it the time.
    assert core.wait(AFTER_MS - 1000) == [] and core.kept[0] == 1
    assert core.wait(1000) == [b"anna went offline"]
    assert core.kept == (0, 0) and not list(core.tables.farewell.scan())
    assert core.wait(5 * AFTER_MS) == []
    assert core.state.counters.publishes == 1 and core.state.counters.chunks == 1
    core.check()


def test_a_session_that_comes_in_time_ends_the_time_and_the_next_absence_begins_anew(core: FarewellDriver) -> None:
    session = core.consumer("anna")
    core.change(GONE)
    core.dispatcher.close(session)
    core.maintain()
    assert core.wait(AFTER_MS - 1) == []
    session = core.consumer("anna")
    assert core.wait(3 * AFTER_MS) == []
    core.dispatcher.close(session)
    core.maintain()
    assert core.wait(AFTER_MS - 1000) == []
    assert core.wait(1000) == [b"anna went offline"]


def test_a_session_that_comes_while_the_record_is_not_written_yet_is_in_time(core: FarewellDriver) -> None:
    core.change(GONE)
    core.maintain()
    core.now_ms += AFTER_MS
    core.node.tick(core.now_ms, core.wall_ms)
    assert core.node.commit
    session = core.consumer("anna")
    core.commit()
    assert core.records[-1].kind == Kind.FAREWELL and decode_farewells(core.records[-1].payload)[1] == []
    assert core.said() == [] and core.kept[0] == 1
    core.dispatcher.close(session)
    core.maintain()
    assert core.wait(AFTER_MS) == [b"anna went offline"]


def test_a_session_that_comes_and_goes_before_the_record_is_written_begins_the_time_anew(core: FarewellDriver) -> None:
    core.change(GONE)
    core.maintain()
    core.now_ms += AFTER_MS
    core.node.tick(core.now_ms, core.wall_ms)
    assert core.node.commit
    core.dispatcher.close(core.consumer("anna"))
    core.commit()
    assert core.said() == [] and core.kept[0] == 1
    core.maintain()
    assert core.wait(AFTER_MS - 1000) == []
    assert core.wait(1000) == [b"anna went offline"]


def test_one_that_is_set_anew_before_the_record_is_written_is_not_said_early(core: FarewellDriver) -> None:
    core.change(GONE)
    core.maintain()
    core.now_ms += AFTER_MS
    again = encode_change(ChangeHead(NO_PRODUCER, 0, 0), wire.Change(steps=[GONE]).SerializeToString())
    core.node.commit.submit(Item(Kind.CHANGE, again, lambda effects: None, raises))
    assert core.node.commit.gather(core.wall_ms).entries
    core.node.tick(core.now_ms, core.wall_ms)
    core.node.commit.written()
    while core.node.commit.to_apply:
        core.node.commit.step()
    core.commit()
    assert core.records[-1].kind == Kind.FAREWELL and core.said() == [] and core.kept[0] == 1
    core.maintain()
    assert core.wait(AFTER_MS - 1000) == []
    assert core.wait(1000) == [b"anna went offline"]


def test_one_that_comes_later_finds_it_said(core: FarewellDriver) -> None:
    core.change(GONE)
    core.maintain()
    core.now_ms += AFTER_MS
    core.node.tick(core.now_ms, core.wall_ms)
    batch = core.node.commit.gather(core.wall_ms)
    core.consumer("anna")
    core.node.commit.written()
    while core.node.commit.to_apply:
        core.node.commit.step()
    assert batch.entries and core.said() == [b"anna went offline"] and core.kept == (0, 0)


def test_the_time_of_a_queue_that_nothing_consumes_begins_when_it_is_set(core: FarewellDriver) -> None:
    core.wait(10 * AFTER_MS)
    core.change(GONE)
    core.maintain()
    assert core.wait(AFTER_MS - 1000) == []
    assert core.wait(1000) == [b"anna went offline"]


def test_without_a_time_it_is_published_as_soon_as_the_last_session_left(core: FarewellDriver) -> None:
    session = core.consumer("anna")
    core.change(farewell("anna", key="room", body=b"bye"))
    assert core.wait(AFTER_MS) == []
    core.dispatcher.close(session)
    core.maintain()
    assert core.said() == [b"bye"]


def test_a_new_one_takes_the_place_of_the_old_one_and_its_time_with_it(core: FarewellDriver) -> None:
    core.change(farewell("anna", key="room", body=b"late", after_s=1000))
    core.maintain()
    core.change(farewell("anna", key="room", body=b"soon", after_s=10))
    assert core.kept == (1, len("room") + len(encode_chunk([b"soon"])))
    core.maintain()
    assert core.wait(9_000) == []
    assert core.wait(1_000) == [b"soon"]
    core.change(farewell("anna", key="room", body=b"soon", after_s=10))
    core.maintain()
    core.change(farewell("anna", key="room", body=b"late", after_s=1000))
    core.maintain()
    assert core.wait(999_000) == []
    assert core.wait(1_000) == [b"late"]
    assert core.wait(5_000_000) == []
    core.check()


def test_setting_it_again_and_again_keeps_memory_bounded(core: FarewellDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_clock, "LEFT_STALE_MAX", 10)
    for number in range(100):
        core.change(farewell("anna", key="room", body=b"bye", after_s=1000 - number))
        core.maintain()
    clock = core.dispatcher.farewells._clock
    assert len(clock) == 1 and len(clock._line) <= 12
    assert core.wait(901_000) == [b"bye"]


def test_taken_back_it_is_never_said(core: FarewellDriver) -> None:
    core.change(GONE)
    core.maintain()
    core.wait(AFTER_MS // 2)
    for _ in range(2):  # There may be none.
        assert not core.change(farewell("anna")).steps[0].refusals
    assert core.kept == (0, 0)
    assert core.wait(2 * AFTER_MS) == []
    core.check()


def test_what_is_said_is_gone_until_it_is_set_again(core: FarewellDriver) -> None:
    core.change(GONE)
    core.maintain()
    assert core.wait(AFTER_MS) == [b"anna went offline"]
    session = core.consumer("anna")
    core.dispatcher.close(session)
    assert core.wait(2 * AFTER_MS) == []
    core.change(GONE)
    core.maintain()
    assert core.wait(AFTER_MS) == [b"anna went offline"]


def test_it_survives_a_restart_after_which_its_time_begins_anew(core: FarewellDriver) -> None:
    session = core.consumer("anna")
    core.change(GONE)
    core.dispatcher.close(session)
    core.maintain()
    core.wait(AFTER_MS - 1000)
    core.restart()
    core.read()
    core.maintain()
    assert core.wait(AFTER_MS - 1000) == []
    assert core.wait(1000) == [b"anna went offline"]
    core.restart()
    core.read()
    assert core.wait(2 * AFTER_MS) == [b"anna went offline"]  # Given again, as it was not acked; not said again.
    core.check()


def test_a_queue_that_is_attached_again_after_a_restart_does_not_say_it(core: FarewellDriver) -> None:
    core.change(GONE)
    core.restart()
    core.read()
    core.wait(AFTER_MS - 1000)
    core.consumer("anna")
    assert core.wait(3 * AFTER_MS) == []


def test_pulled_messages_count_as_a_session_and_an_empty_pull_begins_the_time_anew(core: FarewellDriver) -> None:
    core.change(GONE, publish("@anna", b"x"))
    core.maintain()
    core.wait(AFTER_MS - 1000)
    session = core.session()
    assert core.pull(session, "anna", 10)
    assert core.wait(3 * AFTER_MS) == []
    core.dispatcher.close(session)
    core.maintain()
    core.wait(AFTER_MS - 2000)
    session = core.session()
    core.pull(session, "anna", 10)
    for attachment in list(session.pullers.values()):
        for stream in list(attachment.feed.streams.values()):
            core.dispatcher.ack(attachment, stream.key_id, 1, 2)
    core.flush()
    core.maintain()
    core.wait(AFTER_MS - 2000)
    assert core.pull(core.session(), "anna", 10) == []
    core.maintain()
    assert core.wait(AFTER_MS - 1000) == []
    assert core.wait(1000) == [b"anna went offline"]


def test_a_transient_queue_says_it_when_it_expires_if_that_comes_first(core: FarewellDriver) -> None:
    core.change(declare("t", expires_after_s=30), farewell("t", key="room", body=b"expired", after_s=1000))
    core.change(declare("u", expires_after_s=1000), farewell("u", key="room", body=b"left", after_s=30))
    core.maintain()
    assert core.wait(29_000) == []
    assert sorted(core.wait(2_000)) == [b"expired", b"left"]
    assert core.tables.queue_by_name.get(b"t") is None and core.tables.queue_by_name.get(b"u") is not None
    assert core.wait(5_000_000) == [] and core.kept == (0, 0)
    core.check()


def test_a_transient_queue_whose_farewell_is_for_itself_ends_all_the_same(core: FarewellDriver) -> None:
    core.change(declare("t", expires_after_s=30), farewell("t", key="@t", body=b"to nobody", after_s=1000))
    core.maintain()
    core.wait(31_000)
    core.settle()
    assert core.tables.queue_by_name.get(b"t") is None and core.kept == (0, 0)
    core.check()


def test_a_drop_takes_it_back(core: FarewellDriver) -> None:
    core.change(GONE)
    core.change(drop("anna"))
    assert core.kept == (0, 0)
    core.change(declare("anna"))
    assert core.wait(3 * AFTER_MS) == []
    core.check()


def test_it_is_published_at_a_key_that_is_full(core: FarewellDriver) -> None:
    core.change(configure("room", KeyOptions(capacity_messages=1)), publish("room", b"full"))
    core.change(GONE)
    core.maintain()
    assert core.wait(AFTER_MS) == [b"full", b"anna went offline"]
    core.check()


def test_without_a_binding_nothing_is_kept(core: FarewellDriver) -> None:
    core.change(farewell("anna", key="nobody", body=b"x"))
    core.maintain()
    assert core.kept == (0, 0) and core.state.kept.messages == 0
    core.check()
