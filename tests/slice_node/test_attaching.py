"""An attach that is refused changes nothing: what its handles meant goes on."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from shoal_contract.errors import Conflict, ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import attach_room
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.limits import (
    ATTACHED_PER_STEP,
    ATTACHMENT_BYTES,
    COUNTED_NAME_BYTES,
    FEED_BYTES,
    INLINE_STREAMS_MAX,
    OWED_BY_PULLS_MAX,
    OWED_BYTES,
    OWED_FLOOR,
    OWED_PER_SESSION_MAX,
    PULL_FLOOR,
    SMALL_PULLS_PART,
    STREAM_BYTES,
)
from shoal_slice_node.core.node.requests import attach
from shoal_slice_node.core.turns import Work, finish

from .core_driver import CoreDriver, bind, declare, drop, publish, unbind

ONE_QUEUE_BYTES = ATTACHMENT_BYTES + FEED_BYTES + 2 * STREAM_BYTES
"""Of a queue with two bindings that nothing else consumes."""


def queues(names: str) -> CoreDriver:
    """Each of these has two bindings of its own."""
    core = CoreDriver()
    core.change(declare(*names), *(bind(name, f"1{name}", f"2{name}") for name in names))
    return core


def test_a_refused_attach_leaves_what_its_handle_meant() -> None:
    core = queues("xy")
    session = core.session()
    core.attach(session, "x", 1)
    core.attach(session, "y", 2)
    core.attach(session, "not there", 3)
    for handle in (2, 3):
        with pytest.raises(Conflict, match="attached already, as handle 1"):
            core.attach(session, "x", handle)
    core.change(publish("1x", b"of x"), publish("1y", b"of y"))
    assert [body for _, _, body in core.take(session)] == [b"of x", b"of y"]
    assert session.by_queue == {b"x": 1, b"y": 2, b"not there": 3}


def test_what_a_replaced_handle_frees_counts_as_room() -> None:
    core = queues("xyz")
    core.change(bind("z", "3z"))
    core.restart(DispatchShares(attached_bytes=ONE_QUEUE_BYTES))
    session = core.session()
    for name in "xxyx":
        core.attach(session, name, 1)
        assert core.dispatcher.shares.attached.free_bytes == 0
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        core.attach(session, "z", 1)
    core.change(publish("1x", b"of x"))
    assert [body for _, _, body in core.take(session)] == [b"of x"]


def test_who_consumes_a_queue_may_attach_it_again_however_many_do() -> None:
    core = queues("xy")
    first, second = core.session(), core.session()
    with (
        patch.object(attach_room, "CONSUMERS_PER_QUEUE_MAX", 1),
        patch.object(attach_room, "ATTACHED_PER_SESSION_MAX", 1),
    ):
        core.attach(first, "x", 1)
        core.attach(second, "y", 1)
        core.attach(first, "x", 1, messages=5)
        assert first.attachments[1].window_messages == 5
        with pytest.raises(ResourceExhausted, match="consumers of queue x"):
            core.attach(second, "x", 1)
        with pytest.raises(ResourceExhausted, match="queues attached by one session"):
            core.attach(second, "x", 2)
    assert first.by_queue == {b"x": 1} and second.by_queue == {b"y": 1}


def frame(core: CoreDriver, session: Session, names: list[str], handles: list[int]) -> Work[wire.Answer]:
    return attach(core.node, session, wire.Attach(queues=[name.encode() for name in names], handles=handles))()


@pytest.mark.parametrize(
    ("names", "handles", "attached"),
    [
        (["z", "x"], [1, 2], {b"z": 1, b"x": 2}),
        (["x", "y"], [1, 2], {b"x": 1, b"y": 2}),
        (["x", "y"], [2, 1], None),
        (["z", "x"], [2, 3], None),
        (["z", "x"], [3, 4], None),
    ],
)
def test_of_a_frame_all_queues_are_attached_or_nothing_changes(
    names: list[str], handles: list[int], attached: dict[bytes, int] | None
) -> None:
    core = queues("xyz")
    session = core.session()
    core.attach(session, "x", 1)
    core.attach(session, "y", 2)
    before = dict(session.attachments)
    if attached is None:
        with pytest.raises(Conflict):
            finish(frame(core, session, names, handles))
        assert (session.by_queue, session.attachments) == ({b"x": 1, b"y": 2}, before)
    else:
        finish(frame(core, session, names, handles))
        assert session.by_queue == attached
    core.dispatcher.close(session)
    core.pump()
    assert core.dispatcher.shares.attached.used_bytes == 0 and not core.dispatcher.feeds


def test_a_session_whose_room_was_taken_while_its_frame_was_looked_at_ends() -> None:
    core = CoreDriver()
    names = [f"q{number}" for number in range(2 * ATTACHED_PER_STEP)]
    core.change(declare(*names, "r"))
    room = (len(names) + 1) * (ATTACHMENT_BYTES + FEED_BYTES)
    core.restart(DispatchShares(attached_bytes=room))
    session, other = core.session(), core.session()
    core.attach(session, names[0], 1)
    work = frame(core, session, names[1:], list(range(1, len(names))))
    next(work)
    core.attach(other, "r", 1)
    core.attach(other, names[0], 2)
    core.attach(other, names[-1], 3)
    with pytest.raises(ResourceExhausted):
        finish(work)
    assert session.ended_by is not None and session.number in core.dispatcher.dirty


def test_who_waited_for_a_queue_that_finds_no_room_ends_and_waits_no_more() -> None:
    """Its attach was tried again for ever."""
    core = CoreDriver()
    core.restart(DispatchShares(attached_bytes=ATTACHMENT_BYTES + FEED_BYTES))
    session = core.session()
    core.attach(session, "late", 1)
    core.change(declare("late"), bind("late", "k"))
    turns = 0
    while core.dispatcher.turn():
        turns += 1
        assert turns < 100
    assert isinstance(session.ended_by, ResourceExhausted) and not session.awaited and not session.by_queue
    assert core.dispatcher.shares.attached.used_bytes == 0


def test_pulls_find_no_room_where_attaches_find_none() -> None:
    """Pulls of one message each took as much memory as they liked."""
    core = queues("xyz")
    core.restart(DispatchShares(attached_bytes=ONE_QUEUE_BYTES))
    session = core.session()
    core.attach(session, "x", 1)
    for name in "yz":
        core.change(publish(f"1{name}", b"job"))
        with pytest.raises(ResourceExhausted, match="memory of attached queues"):
            core.pull(session, name, 1)
    assert not session.pullers and len(core.dispatcher.feeds) == 1
    core.dispatcher.shares.attached.limit_bytes += ATTACHMENT_BYTES
    assert not core.pull(session, "x", 1), "it is in memory already"
    core.dispatcher.detach(session, 1)
    assert [one.low for one in core.pull(session, "y", 1)] == [1]


def test_queues_that_are_loaded_side_by_side_count_whole_from_the_beginning() -> None:
    """One frame attached 300 queues of 5,000 bindings: none was refused, and they took twice the process's memory."""
    core = CoreDriver()
    many = [f"k{number}" for number in range(INLINE_STREAMS_MAX + 1)]
    core.change(declare("x", "y", "z"))
    for name in "xyz":
        for first in range(0, len(many), 500):
            core.change(bind(name, *many[first : first + 500]))
    whole = ATTACHMENT_BYTES + FEED_BYTES + STREAM_BYTES * len(many)
    core.restart(DispatchShares(attached_bytes=2 * whole))
    share, session = core.dispatcher.shares.attached, core.session()
    core.dispatcher.attach(session, b"x", 1, 10, 1 << 20)
    assert core.dispatcher.feeds[next(iter(core.dispatcher.feeds))].loading
    assert share.used_bytes == whole
    core.dispatcher.attach(session, b"y", 2, 10, 1 << 20)
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        core.dispatcher.attach(session, b"z", 3, 10, 1 << 20)
    core.change(unbind("y", many[0], discard=True), unbind("x", many[-1], discard=True))
    core.pump()
    assert share.used_bytes == 2 * (whole - STREAM_BYTES)
    core.change(bind("x", many[-1]))
    assert share.free_bytes == STREAM_BYTES
    for handle in (1, 2):
        core.dispatcher.detach(session, handle)
    core.pump()
    assert share.used_bytes == 0


def test_a_queue_that_goes_while_it_is_loaded_lets_go_of_all_of_its_memory() -> None:
    core = CoreDriver()
    core.change(declare("x"))
    for first in range(0, 2 * INLINE_STREAMS_MAX, 500):
        core.change(bind("x", *(f"k{number}" for number in range(first, first + 500))))
    core.restart()
    session = core.session()
    core.dispatcher.attach(session, b"x", 1, 10, 1 << 20)
    core.dispatcher.detach(session, 1)
    core.pump()
    assert core.dispatcher.shares.attached.used_bytes == 0


def test_what_is_out_by_pulls_of_all_keeps_nobody_from_the_jobs_of_another_queue() -> None:
    core = CoreDriver()
    core.change(declare("a", "b"), *(bind("a", f"k{number}") for number in range(OWED_FLOOR + 1)), bind("b", "b"))
    core.change(*(publish(f"k{number}", b"job") for number in range(OWED_FLOOR + 1)))
    core.change(publish("b", *[b"job"] * (PULL_FLOOR + 5)))
    core.restart(DispatchShares(owed_bytes=2 * OWED_BYTES))
    session = core.session()
    core.dispatcher.share_among_calls(session)
    assert session.owed_max == OWED_FLOOR
    assert len(core.pull(session, "a", 1000)) == OWED_FLOOR + 1
    with pytest.raises(
        ResourceExhausted, match=f"is in {OWED_FLOOR + 1} stretches of offsets; the limit is {OWED_FLOOR}"
    ):
        core.pull(session, "a", 1)
    assert sum(one.to - one.low for one in core.pull(session, "b", 1000)) == PULL_FLOOR
    with pytest.raises(ResourceExhausted, match="ack some of it, or let leases end"):
        core.pull(session, "b", 1)
    core.dispatcher.divide_owed([])
    assert session.owed_max == OWED_FLOOR
    assert core.dispatcher.shares.owed.used_bytes == OWED_BYTES * session.owed
    used_bytes, own = core.dispatcher.shares.attached.used_bytes, core.session()
    own.limit_owed(0)
    with pytest.raises(ResourceExhausted, match="ack some of it"):
        core.pull(own, "b", 1)  # Who has a session of its own can ack.
    core.dispatcher.close(session)
    core.pump()
    assert used_bytes > 2 * ATTACHMENT_BYTES and core.dispatcher.shares.attached.used_bytes == 0
    assert DispatchShares().owed_by_pulls_max == OWED_BY_PULLS_MAX > OWED_PER_SESSION_MAX


def test_small_queues_are_pulled_from_where_large_ones_have_taken_all_room() -> None:
    """Two pulls from large queues, under leases of an hour, kept every worker from every other queue."""
    core = queues("xy")
    core.change(declare("large"), bind("large", *(f"k{number}" for number in range(INLINE_STREAMS_MAX))))
    core.change(declare("larger"), bind("larger", *(f"k{number}" for number in range(INLINE_STREAMS_MAX + 1))))
    core.change(publish("k1", b"job"), publish("1x", b"job"))
    core.restart(DispatchShares(attached_bytes=1 << 20))
    session, share = core.session(), core.dispatcher.shares.attached
    assert core.pull(session, "large", 1, 3_600_000)
    share.limit_bytes = share.used_bytes
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        core.pull(session, "larger", 1)
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        core.attach(core.session(), "x", 1)
    assert core.pull(session, "x", 1)
    share.limit_bytes = share.used_bytes * SMALL_PULLS_PART // (SMALL_PULLS_PART + 1)
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        core.pull(session, "y", 1)


def test_each_client_that_pulls_from_a_queue_needs_room_though_the_queue_is_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attach_room, "SMALL_PULLS_PART", 1 << 60)
    core = queues("x")
    core.change(publish("1x", b"1"), publish("1x", b"2"), publish("1x", b"3"))
    core.attach(core.session(), "x", 1, 1)
    core.pump()
    puller, share = core.session(), core.dispatcher.shares.attached
    share.limit_bytes = share.used_bytes + ATTACHMENT_BYTES - 1
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        core.pull(puller, "x", 1)
    share.limit_bytes += 1
    assert core.pull(puller, "x", 1)
    share.limit_bytes = share.used_bytes
    assert core.pull(puller, "x", 1), "it has something out, and takes no more room"


def test_a_pull_that_was_forgotten_before_takes_no_later_one_with_it() -> None:
    """Of the same queue and session."""
    core = queues("x")
    core.change(publish("1x", b"1"), publish("1x", b"2"))
    session = core.session()
    core.pull(session, "x", 1)
    (before,) = session.pullers.values()
    core.dispatcher.registry.forget_puller(before)
    core.pull(session, "x", 1)
    (later,) = session.pullers.values()
    assert later is not before and not session.remove_puller(before)
    assert list(session.pullers.values()) == [later] and session.remove_puller(later)


def test_long_names_of_queues_and_keys_count() -> None:
    """Bindings of keys with 250-byte names took 793 bytes, and counted as 450."""
    core = CoreDriver()
    core.change(declare("q", "Q" * 100), bind("q", "k", "K" * 250), bind("Q" * 100, "K" * 250, "L" * 36))
    session, share = core.session(), core.dispatcher.shares.attached
    core.attach(session, "q", 1)
    assert share.used_bytes == ONE_QUEUE_BYTES + 250 - COUNTED_NAME_BYTES
    core.change(bind("q", "M" * 136))
    assert share.used_bytes == ONE_QUEUE_BYTES + STREAM_BYTES + 250 + 136 - 2 * COUNTED_NAME_BYTES
    core.change(unbind("q", "K" * 250, discard=True))
    core.pump()
    first = ONE_QUEUE_BYTES + 136 - COUNTED_NAME_BYTES
    assert share.used_bytes == first
    core.attach(session, "Q" * 100, 2)
    assert share.used_bytes == first + ONE_QUEUE_BYTES + 350 - 2 * COUNTED_NAME_BYTES
    share.limit_bytes = share.used_bytes
    core.attach(session, "Q" * 100, 2)
    core.dispatcher.detach(session, 2)
    core.pump()
    assert share.used_bytes == first
    core.change(drop("q"))
    core.pump()
    assert share.used_bytes == ATTACHMENT_BYTES


def test_who_consumed_a_dropped_queue_is_not_lined_up_again() -> None:
    """Both would stay in memory for each other's sake."""
    core = queues("x")
    session = core.session()
    core.attach(session, "x", 1, 1)
    core.pump()
    attachment = session.attachments[1]
    core.change(drop("x"))
    core.pump()
    attachment.taken_from_line()
    assert attachment.feed.gone and attachment.window_open
    attachment.feed.line_up(attachment)
    assert not attachment.lined and not attachment.feed.find_room()
