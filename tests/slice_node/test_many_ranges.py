"""Done ranges, and stretches to be given again, count as memory: when they are loaded, and as acks leave gaps."""

from __future__ import annotations

import gc

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import attach_room, attaching, returning
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.pulling import PullTerms
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.limits import (
    ATTACHMENT_BYTES,
    FEED_BYTES,
    HEAVY_RANGES,
    INLINE_STREAMS_MAX,
    OWED_BYTES,
    OWED_FLOOR,
    OWED_OVER,
    RANGE_BYTES,
    STREAM_BYTES,
)
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.turns import finish

from .core_driver import CoreDriver, acks, bind, declare, every_second, publish, with_done

RANGES = 1_000
QUEUES = ["a", "b", "c", "d"]
QUEUE_BYTES = ATTACHMENT_BYTES + FEED_BYTES + STREAM_BYTES


def with_ranges(queues: list[str], keys: list[str]) -> CoreDriver:
    core = CoreDriver()
    core.change(declare(*queues), *(bind(queue, *keys) for queue in queues))
    for key in keys:
        core.change(publish(key, *[b"x"] * (2 * RANGES + 2)))
    for queue in queues:
        with_done(core, queue, keys, every_second(RANGES))
    return core


def attach(core: CoreDriver, session: Session, queues: list[str]) -> wire.Answer:
    request = wire.Attach(queues=[queue.encode() for queue in queues], handles=range(1, len(queues) + 1))
    return finish(requests.attach(core.node, session, request)())


def test_done_ranges_count_when_they_are_loaded_and_a_frame_is_refused_without_room() -> None:
    """Two frames took 212 MiB, of which 3 were counted."""
    core = with_ranges(QUEUES, ["k"])
    core.restart(DispatchShares(attached_bytes=4 * QUEUE_BYTES + 2 * RANGES * RANGE_BYTES))
    share, session = core.dispatcher.shares.attached, core.session()
    attach(core, session, QUEUES[:2])
    assert share.used_bytes == 2 * (QUEUE_BYTES + RANGES * RANGE_BYTES)
    other = core.session()
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        attach(core, other, QUEUES[2:])
    core.pump()
    assert not other.by_queue and share.used_bytes == 2 * (QUEUE_BYTES + RANGES * RANGE_BYTES)
    assert core.take(session)[0] == ("k", 1, b"x")
    core.dispatcher.close(session)
    core.pump()
    assert share.used_bytes == 0


def test_a_queue_of_many_keys_that_turns_out_to_be_too_large_ends_its_sessions() -> None:
    keys = [f"k{number}" for number in range(60)]
    core = with_ranges(["a", "b"], keys)
    core.change(declare("honest"), bind("honest", "k0"))
    core.restart(DispatchShares(attached_bytes=10 * RANGES * RANGE_BYTES))
    share, session, honest = core.dispatcher.shares.attached, core.session(), core.session()
    core.attach(honest, "honest")
    attach(core, session, ["a"])
    core.pump()
    assert isinstance(session.ended_by, ResourceExhausted) and not session.by_queue and honest.ended_by is None
    assert share.used_bytes < 0.1 * share.limit_bytes
    queue_id = core.tables.queue_by_name.get(b"b") or b""
    pull = core.puller.pull(core.session(), queue_id, PullTerms(1_000, 0, 1_000), lambda: core.now_ms)
    with pytest.raises(ResourceExhausted, match="memory of done ranges of queues that are only pulled from"):
        while True:
            next(pull)
            core.dispatcher.turn()
    core.dispatcher.close(session)
    core.pump()
    assert share.used_bytes == ATTACHMENT_BYTES + FEED_BYTES + STREAM_BYTES


def test_acks_with_gaps_end_the_session_that_owes_most_where_what_is_owed_is_full() -> None:
    """One session of 1,500 handles took 343 MB of a share of 16.8 by acks alone."""
    core, names = CoreDriver(), [f"q{number}" for number in range(8)]
    core.restart(DispatchShares(owed_bytes=3 * OWED_OVER * OWED_FLOOR * OWED_BYTES))
    core.change(declare(*names, "honest"), *(bind(queue, "k") for queue in names), bind("honest", "other"))
    core.change(publish("k", *[b"x"] * 1_000), publish("other", b"y"))
    greedy, honest = core.session(), core.session()
    attach(core, greedy, names)
    core.attach(honest, "honest")
    assert core.take(greedy) and core.take(honest)
    for low in range(2, 1_000, 2):
        for handle in range(1, len(names) + 1):
            core.ack(greedy, "k", low, low + 1, handle)
        if low % 100 == 0:
            core.dispatcher.divide_owed([greedy, honest])
    assert isinstance(greedy.ended_by, ResourceExhausted) and honest.ended_by is None
    core.dispatcher.close(greedy)
    core.pump()
    core.settle()
    core.dispatcher.divide_owed([honest])
    assert core.dispatcher.shares.owed.used_bytes == OWED_BYTES
    core.check()


def test_a_session_that_owes_somewhat_more_than_it_may_goes_on() -> None:
    core = CoreDriver()
    core.restart(DispatchShares(owed_bytes=OWED_FLOOR * OWED_BYTES))
    core.change(declare("q"), bind("q", "k"))
    core.change(publish("k", *[b"x"] * 1_000))
    session, bound = core.session(), OWED_OVER * OWED_FLOOR
    core.attach(session, "q", messages=1_000)
    core.take(session)
    for low in range(2, 2 * bound, 2):
        core.ack(session, "k", low, low + 1)
        core.dispatcher.divide_owed([session])
        assert (session.ended_by is not None) == (session.owed > bound)
    assert core.dispatcher.shares.owed.free_bytes < 0
    core.ack(session, "k", 2 * bound, 2 * bound + 1)
    core.dispatcher.divide_owed([session])
    assert isinstance(session.ended_by, ResourceExhausted) and session.owed == bound + 1


def test_a_session_that_was_given_much_before_others_came_does_not_end() -> None:
    """A thousand sessions that owe a little each made its share small."""
    core = CoreDriver()
    core.restart(DispatchShares(owed_bytes=10 * OWED_FLOOR * OWED_BYTES))
    keys = [f"k{number}" for number in range(6 * OWED_OVER * OWED_FLOOR)]
    core.change(declare("honest"))
    core.change_all(bind("honest", key) for key in keys)
    core.change_all(publish(key, b"x") for key in keys)
    honest = core.session(64 << 20)
    core.attach(honest, "honest", messages=100_000)
    assert len(core.take(honest)) == len(keys) == honest.owed
    for _ in range(3):
        core.dispatcher.divide_owed([honest])
    assert honest.owed > OWED_OVER * honest.owed_max and honest.ended_by is None


def test_where_there_is_no_memory_for_ranges_a_queue_with_gaps_gets_its_lowest_message() -> None:
    core = with_ranges(["a"], ["k"])
    core.restart(DispatchShares(attached_bytes=QUEUE_BYTES + RANGES * RANGE_BYTES))
    share, session = core.dispatcher.shares.attached, core.session()
    attach(core, session, ["a"])
    share.hold(10 * RANGE_BYTES)
    for offset in (1, 3, 5):
        assert [found for _, found, _ in core.take(session)] == [offset], "and its gaps close"
        core.ack(session, "k", offset, offset + 1)
    core.pump()
    assert not core.dispatcher.has_work
    share.let_go(10 * RANGE_BYTES)
    assert len(core.take(session)) > 1


@pytest.mark.parametrize("short_bytes", range(0, 10 * RANGE_BYTES, 60))
def test_a_queue_whose_serving_makes_room_is_served_on(short_bytes: int) -> None:
    """To give its lowest message freed the memory that was short, and nothing put the queue in line again."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    stays, leaves = core.session(), core.session()
    for session in (stays, leaves):
        core.attach(session, "q")
    core.change_all(publish("k", b"x") for _ in range(20))
    done = [offset for _, offset, _ in core.take(stays)]
    left = [offset for _, offset, _ in core.take(leaves)]
    assert len(done) == len(left) == 10
    for offset in done:
        core.ack(stays, "k", offset, offset + 1)
    core.dispatcher.close(leaves)
    share = core.dispatcher.shares.attached
    share.limit_bytes = share.used_bytes - short_bytes
    found: list[int] = []
    for _ in range(20):
        core.settle()
        found += [offset for _, offset, _ in core.take(stays)]  # This also looks for silent queues.
        core.ack(stays, "k", found[-1], found[-1] + 1)
    assert found[:10] == left


@pytest.mark.parametrize("free_ranges", range(12))
def test_a_queue_that_becomes_short_while_it_is_served_is_served_on(
    free_ranges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came back of a session that ended took the last memory, and what was given freed some, both in one turn:
    nothing put the queue in line again for it."""
    monkeypatch.setattr(returning, "INLINE_STREAMS_MAX", 1)
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    stays, leaves = core.session(), core.session()
    for session in (stays, leaves):
        core.attach(session, "q")
    core.change_all(publish("k", b"x") for _ in range(20))
    assert len(core.take(leaves)) == 10
    for _, offset, _ in core.take(stays):
        core.ack(stays, "k", offset, offset + 1)
    core.dispatcher.close(leaves)
    share = core.dispatcher.shares.attached
    share.limit_bytes = share.used_bytes + free_ranges * RANGE_BYTES - RANGE_BYTES // 2
    (feed,) = core.dispatcher.feeds.values()
    for stream in feed.streams.values():
        feed.set_lagging(stream)
    core.dispatcher.registry.wake(feed)
    while core.dispatcher.turn():
        core.check_served()


def test_ranges_that_changes_make_of_attached_queues_have_a_bound() -> None:
    """1,500 queues took 397 MB of a share of 80: the share had nobody who ends."""
    core = CoreDriver()
    core.restart(DispatchShares(attached_bytes=8 * QUEUE_BYTES + 2 * RANGES * RANGE_BYTES))
    core.change(declare(*QUEUES, "honest"), *(bind(queue, "k") for queue in QUEUES), bind("honest", "other"))
    for _ in range(2):
        core.change(publish("k", *[b""] * 1_000))
    session, honest = core.session(), core.session()
    for handle, queue in enumerate(QUEUES, 1):
        core.attach(session, queue, handle, 1)
    core.attach(honest, "honest")
    for low in range(2, 2_000, 2):
        core.change(acks(*((queue, "k", low, low + 1) for queue in QUEUES)))
        if low % 200 == 0:
            core.dispatcher.relieve()
            core.pump()
            if session.ended_by is not None and not session.closed:
                core.dispatcher.close(session)
                core.pump()
    share = core.dispatcher.shares.attached
    assert isinstance(session.ended_by, ResourceExhausted) and honest.ended_by is None and share.free_bytes > 0
    core.attach(core.session(), "honest")
    core.check()


def pull(core: CoreDriver, queue: str, session: Session | None = None) -> list[wire.Delivery]:
    """One message, under a lease of an hour, while others have their turns."""
    queue_id = core.tables.queue_by_name.get(queue.encode()) or b""
    steps = core.puller.pull(session or core.session(), queue_id, PullTerms(1, 0, 3_600_000), lambda: core.now_ms)
    while True:
        try:
            next(steps)
        except StopIteration as error:
            return [parcel.to_wire() for parcel in error.value]
        core.dispatcher.turn()


ONLY_PULLED = "memory of done ranges of queues that are only pulled from, bytes: "


def test_queues_with_many_ranges_are_pulled_from_while_half_of_the_memory_is_free() -> None:
    """229 pulls with leases of an hour kept everybody from attaching."""
    core = with_ranges(QUEUES, ["k"])
    core.change(declare("honest", "small"), bind("honest", "k"), bind("small", "s"))
    core.change(publish("s", *[b"x"] * (2 * HEAVY_RANGES + 2)))
    with_done(core, "small", ["s"], every_second(HEAVY_RANGES))
    core.restart(DispatchShares(attached_bytes=4 * RANGES * RANGE_BYTES))
    room, size_bytes = core.dispatcher.registry.range_room, RANGES * RANGE_BYTES
    assert pull(core, "a") and pull(core, "b")
    assert room.pulled_bytes == 2 * size_bytes
    for queue in ("c", "d"):
        with pytest.raises(ResourceExhausted, match=f"{ONLY_PULLED}{3 * size_bytes}; the limit is {2 * size_bytes}"):
            pull(core, queue)
    assert pull(core, "a"), "it takes no more ranges"
    assert pull(core, "small"), "a worker with few ranges does not wait for others' leases"
    session = core.session()
    core.attach(session, "a", 1, 1)
    core.attach(session, "honest", 2, 1)
    assert room.pulled_bytes == size_bytes and pull(core, "c")
    core.dispatcher.detach(session, 1)
    assert room.pulled_bytes == 3 * size_bytes + RANGE_BYTES, "and one that is given again"
    core.now_ms += 3_600_001
    core.end_leases()
    core.pump()
    assert room.pulled_bytes == 0 and pull(core, "d")


def test_a_queue_with_many_ranges_that_a_session_has_attached_is_pulled_from() -> None:
    """Its ranges are in memory anyway."""
    core = with_ranges(["a"], ["k"])
    core.restart(DispatchShares(attached_bytes=int(1.5 * RANGES * RANGE_BYTES)))
    core.attach(core.session(), "a", 1, 1)
    assert pull(core, "a") and core.dispatcher.registry.range_room.pulled_bytes == 0


@pytest.mark.parametrize("inline", [1, INLINE_STREAMS_MAX])
def test_a_pull_that_is_refused_is_freed_without_the_collector(inline: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (attach_room, attaching):
        monkeypatch.setattr(module, "INLINE_STREAMS_MAX", inline)
    core = with_ranges(["a"], ["k", "l"])
    core.restart(DispatchShares(attached_bytes=RANGES * RANGE_BYTES))
    gc.collect()
    before = {id(one) for one in gc.get_objects() if isinstance(one, ResourceExhausted | Attachment)}  # Of other tests.
    gc.disable()
    try:
        for _ in range(3):
            try:
                pull(core, "a")
            except ResourceExhausted as error:
                assert "memory of" in error.message
            else:
                pytest.fail("it was not refused")
        found = [one for one in gc.get_objects() if isinstance(one, ResourceExhausted | Attachment)]
        assert not [one for one in found if id(one) not in before]
    finally:
        gc.enable()


def test_what_others_attached_refuses_no_pull_from_a_queue_with_many_ranges() -> None:
    """More than half of the memory was used, though not by pulls."""
    core, names = with_ranges(["a"], ["k"]), [f"n{number}" for number in range(60)]
    core.change(declare(*names), *(bind(name, "k") for name in names))
    core.restart(DispatchShares(attached_bytes=int(1.6 * 60 * QUEUE_BYTES)))
    attach(core, core.session(), names)
    share = core.dispatcher.shares.attached
    assert share.used_bytes > 0.6 * share.limit_bytes
    with pytest.raises(ResourceExhausted, match="memory of attached queues, bytes"):
        pull(core, "a")  # There is no memory at all for its ranges.
    core.pump()
    assert share.used_bytes == 60 * QUEUE_BYTES and core.dispatcher.registry.range_room.pulled_bytes == 0
    share.limit_bytes = 2 * 60 * QUEUE_BYTES
    assert pull(core, "a")


def test_a_queue_that_is_loaded_in_turns_is_refused_as_others_are_where_pulls_have_their_half() -> None:
    """It had no ranges yet when they were looked at, and took all of the memory."""
    keys, ranges = [f"k{number}" for number in range(INLINE_STREAMS_MAX + 1)], 8
    core = CoreDriver()
    core.change(declare(*QUEUES))
    for queue in QUEUES:
        core.change_all(bind(queue, key) for key in keys)
    core.change_all(publish(key, *[b"x"] * (2 * ranges + 2)) for key in keys)
    for queue in QUEUES:
        with_done(core, queue, keys, every_second(ranges))
    ranges_bytes = len(keys) * ranges * RANGE_BYTES
    core.restart(DispatchShares(attached_bytes=5 * ranges_bytes))
    assert pull(core, "a") and pull(core, "b")
    core.pump()
    with pytest.raises(ResourceExhausted, match=ONLY_PULLED):
        pull(core, "c")
    core.pump()
    assert core.dispatcher.registry.range_room.pulled_bytes == 2 * ranges_bytes


def test_a_queue_with_many_ranges_stays_where_others_took_the_memory() -> None:
    """Small pulls may take a sixteenth more than there is: that ended every session with such a queue."""
    core = CoreDriver()
    core.change(declare("honest"), bind("honest", "k"))
    for _ in range(2):
        core.change(publish("k", *[b"x"] * 1_000))
    honest = core.session()
    core.attach(honest, "honest", messages=10_000)
    core.take(honest)
    for low in range(2, 2_000, 2):
        core.ack(honest, "k", low, low + 1)
    share = core.dispatcher.shares.attached
    share.limit_bytes = 10 * share.used_bytes
    share.hold(share.free_bytes + share.limit_bytes // 4)
    core.dispatcher.relieve()
    core.pump()
    assert honest.ended_by is None
