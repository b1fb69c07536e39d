"""Live publishes: to those that consume now, in order with stored ones, at most once, and nothing is kept."""

from __future__ import annotations

import asyncio

import pytest

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.errors import Fenced, Malformed, ResourceExhausted, ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import ErrorCode
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.dispatch import growing
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import GIVEN_AT_ONCE_MAX
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.verbs.changes import check_change, parse_change

from .core_driver import CoreDriver, acks, bind, declare, drop, publish, raises, unbind
from .live_steps import consumed
from .looped_node import Looped, full, looped


def live(key: str, *bodies: bytes, mandatory: bool = False) -> wire.Step:
    return publish(key, *bodies, mandatory=mandatory, live=True)


def bodies(core: CoreDriver, session: Session) -> list[bytes]:
    return [body for _, _, body in core.take(session)]


def test_a_live_chunk_reaches_attached_queues_once_for_each_session() -> None:
    core, session = consumed("k")
    core.change(declare("second", "away"), bind("second", "k"), bind("away", "k"))
    core.attach(session, "second", handle=2)
    answer = core.live(live("k", b"a", b"b"))
    outcome = wire.Outcome.FromString(answer.outcome)
    assert (list(outcome.steps[0].offsets), list(outcome.steps[0].queues), list(answer.consumed)) == ([0], [3], [2])
    (delivery,) = core.deliveries(session)
    assert (delivery.live, delivery.first, delivery.low, delivery.to) == (True, 0, 0, 2)
    assert (list(delivery.handles), list(parse_chunk(delivery.chunk).bodies)) == ([1, 2], [b"a", b"b"])
    assert delivery.time_ms == core.wall_ms


def test_a_queue_whose_window_is_full_gets_it_though_others_acked_what_it_had_not_been_given() -> None:
    """Until its window opens it counts as behind the key: it is to read that there is nothing more to be given."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k", "other"), publish("other", b"1"))
    session = core.session()
    core.attach(session, "q", messages=1)
    assert len(core.take(session)) == 1
    core.change(publish("k", b"stored"))
    core.change(acks(("q", "k", 1, 2)))
    core.live(live("k", b"a"))
    assert bodies(core, session) == [b"a"]


def test_nothing_of_it_is_kept() -> None:
    core, session = consumed("k")
    before = core.state.lsn
    core.live(live("k", b"a"))
    core.take(session)
    assert (core.state.lsn, core.state.kept.messages) == (before, 0)
    core.dispatcher.close(session)
    again = core.session()
    core.attach(again, "q")
    assert core.take(again) == []
    core.change(publish("k", b"stored"))
    assert core.take(again) == [("k", 1, b"stored")]
    core.check()


def test_it_takes_no_window_and_owes_no_ack() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k"))
    core.attach(session, "q", messages=1)
    core.change(publish("k", b"fills the window"))
    assert bodies(core, session) == [b"fills the window"]
    for _ in range(3):
        core.live(live("k", b"live"))
    assert bodies(core, session) == [b"live"] * 3
    (attachment,) = session.attachments.values()
    assert (attachment.messages, session.owed, session.under_way_bytes) == (1, 1, 0)


def test_it_comes_after_earlier_publishes_and_before_later_ones() -> None:
    """All of it waits in one batch; other keys, too."""
    core, session = consumed("k", "other")
    commit = core.node.commit

    def submit(step: wire.Step) -> None:
        if step.publishes.live:
            commit.submit(core.live_item(wire.Answer(), step), "c")
        else:
            payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), wire.Change(steps=[step]).SerializeToString())
            commit.submit(Item(Kind.CHANGE, payload, lambda _: None, raises), "c")

    for step in (publish("k", b"1"), live("k", b"2"), publish("other", b"3"), live("k", b"4"), publish("k", b"5")):
        submit(step)
    core.commit()
    assert bodies(core, session) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_queue_that_is_behind_loses_it() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k"))
    core.attach(session, "q", messages=1)
    core.change(publish("k", b"1"), publish("k", b"2"))
    core.live(live("k", b"lost"))
    assert bodies(core, session) == [b"1"]
    core.ack(session, "k", 1, 2)
    assert bodies(core, session) == [b"2"]
    core.live(live("k", b"level again"))
    assert bodies(core, session) == [b"level again"]


def test_a_session_without_room_loses_it_and_memory_stays_bounded() -> None:
    core, session = consumed("k")
    body = bytes(1 << 10)
    for _ in range(2 * session.window_bytes // len(body)):
        core.live(live("k", body))
    assert session.under_way_bytes < session.window_bytes + 2 * len(body)
    waiting = len(session.waiting)
    assert 0 < waiting == len(core.deliveries(session)) <= session.window_bytes // len(body)
    assert session.under_way_bytes == core.dispatcher.shares.deliveries.used_bytes == 0
    core.live(live("k", b"there is room again"))
    assert bodies(core, session) == [b"there is room again"]


def test_competing_sessions_take_turns_and_one_without_room_is_passed_over() -> None:
    core, first = consumed("k")
    second, full = core.session(), core.session(window_bytes=1)
    core.attach(second, "q")
    core.attach(full, "q")
    core.change(declare("filler"), bind("filler", "f"))
    core.attach(full, "filler", handle=2)
    core.change(publish("f", b"fills it"))
    for _ in range(6):
        core.live(live("k", b"x"))
    assert (len(bodies(core, first)), len(bodies(core, second))) == (3, 3)


def test_direct_key_that_was_never_used() -> None:
    core, session = consumed("k")
    answer = core.live(live("@q", b"direct", mandatory=True))
    assert (list(wire.Outcome.FromString(answer.outcome).steps[0].queues), list(answer.consumed)) == ([1], [1])
    assert core.take(session) == [("@q", 0, b"direct")]
    core.change(publish("@q", b"stored"))
    core.live(live("@q", b"after"))
    assert core.take(session) == [("@q", 1, b"stored"), ("@q", 0, b"after")]
    core.dispatcher.detach(session, 1)
    assert list(core.live(live("@q", b"nobody")).consumed) == [0]


def test_mandatory_needs_a_binding_but_no_consumer() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    assert not wire.Outcome.FromString(core.live(live("k", b"x", mandatory=True)).outcome).steps[0].refusals
    for key in ("unbound", "@unknown"):
        answer = core.live(live(key, b"x", mandatory=True), live("k", b"y"))
        first, second = wire.Outcome.FromString(answer.outcome).steps
        assert first.refusals[0].error.code == ErrorCode.ERROR_CODE_UNROUTABLE
        assert (list(first.queues), list(second.queues), list(answer.consumed)) == ([0], [1], [0, 0])
    assert not wire.Outcome.FromString(core.live(live("unbound", b"x")).outcome).steps[0].refusals


def test_a_key_of_another_slice_is_refused() -> None:
    core, _ = consumed("k")
    core.state.owned = bytes(len(core.state.owned))
    (step,) = wire.Outcome.FromString(core.live(live("k", b"x")).outcome).steps
    assert step.refusals[0].error.code == ErrorCode.ERROR_CODE_NOT_OWNER


@pytest.mark.parametrize("end", [unbind("q", "k"), unbind("q", "k", discard=True), drop("q")])
def test_nothing_comes_after_the_end_of_the_binding(end: wire.Step) -> None:
    core, session = consumed("k")
    core.change(end)
    core.live(live("k", b"x"))
    assert core.take(session) == []


def test_a_handle_that_is_detached_gets_nothing_that_waits() -> None:
    core, session = consumed("k")
    core.live(live("k", b"x"))
    core.dispatcher.detach(session, 1)
    assert core.take(session) == []
    assert core.dispatcher.shares.deliveries.used_bytes == 0


def test_the_next_life_of_a_queue_gets_nothing_live_of_keys_that_it_is_not_bound_to() -> None:
    """The streams of a dropped queue with many keys are forgotten in turns, and found its consumers meanwhile."""
    core, keys = CoreDriver(), [f"k{number}" for number in range(500)]
    core.change(declare("q"), bind("q", *keys))
    session = core.session()
    core.attach(session, "q")
    core.pump()
    core.change(drop("q"))
    core.change(declare("q"))
    for key in keys[:5]:
        core.live(live(key, b"x"))
    assert core.take(session) == []


def test_large_groups_get_it_in_turns_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    core, session = consumed("k")
    queues = [f"q{number}" for number in range(40)]
    core.declare(queues)
    core.change_all(bind(queue, "k") for queue in queues)
    for number, queue in enumerate(queues, 2):
        core.attach(session, queue, handle=number)
    monkeypatch.setattr(growing, "GIVEN_AT_ONCE_MAX", 4)
    core.change(publish("k", b"1"))
    core.live(live("k", b"2"))
    core.change(publish("k", b"3"))
    assert core.dispatcher.growing.spreads
    got: dict[int, list[bytes]] = {}
    for delivery in core.deliveries(session):
        for handle in delivery.handles:
            got.setdefault(handle, []).extend(parse_chunk(delivery.chunk).bodies)
    assert len(got) == 41 and all(found == [b"1", b"2", b"3"] for found in got.values())
    assert len(queues) < GIVEN_AT_ONCE_MAX


def test_live_chunks_that_wait_for_turns_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    core, session = consumed("k")
    monkeypatch.setattr(growing, "GIVEN_AT_ONCE_MAX", 0)
    monkeypatch.setattr(growing, "GROWTHS_WAITING_BYTES_MAX", 1000)
    for _ in range(100):
        core.live(live("k", bytes(100)))
    assert core.dispatcher.growing._waiting_bytes <= 1000
    core.change(publish("k", b"stored"))
    assert b"stored" in bodies(core, session)


def waiting(core: CoreDriver) -> list[int]:
    """The chunks of each key that wait for turns."""
    return [len(spread.chunks) for spread in core.dispatcher.growing.spreads.values()]


def test_tiny_chunks_that_wait_for_turns_are_counted_with_what_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 300 bytes, and has two bytes of its own."""
    core, session = consumed("k")
    monkeypatch.setattr(growing, "GIVEN_AT_ONCE_MAX", 0)
    monkeypatch.setattr(growing, "GROWTHS_WAITING_BYTES_MAX", 200_000)
    for _ in range(20):
        core.change(*[publish("k", b"")] * 200)
        assert sum(waiting(core)) * 250 < 200_000
    assert len(bodies(core, session)) == 1_000, "its window"
    assert core.dispatcher.growing._waiting_bytes == 0 and not core.dispatcher.growing.spreads
    core.check_served()


def test_live_chunks_of_a_key_that_is_behind_are_lost_early_and_stored_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core, session = consumed("k", "other")
    monkeypatch.setattr(growing, "GIVEN_AT_ONCE_MAX", 0)
    monkeypatch.setattr(growing, "LIVE_WAITING_BYTES_MAX", 100_000)
    for _ in range(20):
        core.live(*[live("k", b"")] * 200)
    core.live(live("other", b"first"))
    core.change(publish("k", b"stored"))
    k, other = waiting(core)
    assert other == 1 and 250 * k <= 101_000
    got = bodies(core, session)
    assert len(got) == k + 1 and {b"first", b"stored"} <= set(got)
    core.live(live("k", b"again"))
    assert bodies(core, session) == [b"again"], "none is lost once the others are given"


def test_a_large_change_is_done_in_steps() -> None:
    core, session = consumed("k")
    answer = wire.Answer()
    keys = [b"k"] * 900
    step = wire.Step(publishes=wire.Publishes(keys=keys, chunks=[encode_chunk([b"x"])] * 900, live=True))
    commit = core.node.commit
    commit.submit(core.live_item(answer, step))
    commit.gather(core.wall_ms)
    commit.written()
    steps = 0
    while commit.to_apply:
        commit.step()
        steps += 1
        assert commit.whole == (commit.to_apply == 0)
    assert steps > 3
    assert len(bodies(core, session)) == 900


def test_a_node_that_stops_in_the_middle_ends_what_is_under_way() -> None:
    core, _ = consumed("k")
    step = wire.Step(publishes=wire.Publishes(keys=[b"k"] * 900, chunks=[encode_chunk([b"x"])] * 900, live=True))
    commit = core.node.commit
    commit.submit(core.live_item(wire.Answer(), step))
    commit.gather(core.wall_ms)
    commit.written()
    commit.step()
    before = commit.applied_lsn
    commit.finish_record()
    assert commit.whole and commit.applied_lsn == before


def test_a_change_has_live_publishes_only_or_none() -> None:
    mixed = wire.Change(steps=[live("k", b"x"), publish("k", b"y")]).SerializeToString()
    with pytest.raises(Malformed, match="live publishes has nothing else"):
        parse_change(mixed)
    atomic = wire.Change(steps=[live("k", b"x")], atomic=True).SerializeToString()
    with pytest.raises(Malformed, match="is not atomic"):
        parse_change(atomic)
    later = publish("k", b"x", not_before_ms=1, live=True)
    with pytest.raises(Malformed, match="live publishes with a time"):
        parse_change(wire.Change(steps=[later]).SerializeToString())
    alone = wire.Change(steps=[live("k", b"x"), live("k", b"y")]).SerializeToString()
    assert parse_change(alone).live
    with pytest.raises(Malformed, match="never journaled"):
        check_change(alone)


def test_a_journal_that_holds_one_all_the_same_changes_nothing() -> None:
    core, session = consumed("k")
    data = wire.Change(steps=[live("k", b"x")]).SerializeToString()
    effects = core.record(Kind.CHANGE, encode_change(ChangeHead(NO_PRODUCER, 0, 0), data))
    assert isinstance(effects.refused, Malformed)
    assert core.take(session) == []


def test_figures_count_it() -> None:
    core, session = consumed("k")
    before = core.state.counters.publishes, core.state.counters.chunks, core.state.counters.deliveries
    core.live(live("k", b"x", b"y"))
    core.take(session)
    after = core.state.counters.publishes, core.state.counters.chunks, core.state.counters.deliveries
    assert [now - then for then, now in zip(before, after, strict=True)] == [2, 1, 2]


async def live_on_a_loop(node: Looped, session: Session) -> tuple[Effects | ShoalError, list[bytes]]:
    """What a live publish is answered, and what comes of it."""
    done: asyncio.Future[Effects | ShoalError] = asyncio.get_running_loop().create_future()
    item = node.core.live_item(wire.Answer(), live("k", b"x"))
    item.applied, item.failed = done.set_result, done.set_result
    node.loop.submit(item)
    return await asyncio.wait_for(done, 10), bodies(node.core, session)


async def test_a_node_whose_lease_may_be_over_delivers_nothing() -> None:
    core, session = consumed("k")
    async with looped(core) as (node, task):
        found, came = await live_on_a_loop(node, session)
        assert isinstance(found, Effects) and came == [b"x"]
        node.leads = False
        found, came = await live_on_a_loop(node, session)
        assert isinstance(found, Fenced) and came == []
        with pytest.raises(Fenced):
            await task


async def test_a_full_disk_does_not_keep_live_publishes_back() -> None:
    core, session = consumed("k")
    async with looped(core) as (node, _):
        node.disk.failure = full()
        refused = asyncio.create_task(node.change(publish("k", b"stored")))
        found, came = await live_on_a_loop(node, session)
        assert isinstance(found, Effects) and came == [b"x"]
        assert isinstance(await refused, ResourceExhausted)
