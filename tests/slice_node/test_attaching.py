"""An attach that is refused changes nothing: what its handles meant goes on."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from shoal_contract.errors import Conflict, ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.core.dispatch import attach_room
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.limits import ATTACHED_PER_STEP, ATTACHMENT_BYTES, FEED_BYTES, STREAM_BYTES
from shoal_slice_node.core.node.requests import attach
from shoal_slice_node.core.turns import Work, finish

from .brokers import connected, running
from .core_driver import CoreDriver, bind, declare, publish
from .raw_session import RawSession

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


def test_pulls_and_binds_find_no_room_where_attaches_find_none() -> None:
    """Pulls of one message each, and binds to attached queues, took as much memory as they liked."""
    core = queues("xyz")
    core.restart(DispatchShares(attached_bytes=ONE_QUEUE_BYTES))
    session = core.session()
    core.attach(session, "x", 1)
    for name in "yz":
        core.change(publish(f"1{name}", b"job"))
        with pytest.raises(ResourceExhausted, match="memory of attached queues"):
            core.pull(session, name, 1)
    assert not session.pullers and len(core.dispatcher.feeds) == 1
    assert not core.pull(session, "x", 1), "it is in memory already"
    registry = core.dispatcher.registry
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        attach_room.check_binds(registry, wire.Change(steps=[bind("y", "new"), bind("x", "new")]))
    attach_room.check_binds(registry, wire.Change(steps=[bind("y", "new"), declare("x")]))
    core.dispatcher.detach(session, 1)
    attach_room.check_binds(registry, wire.Change(steps=[bind("x", "new")]))
    assert [one.low for one in core.pull(session, "y", 1)] == [1]


async def test_a_bind_is_refused_where_its_queue_in_memory_finds_no_room(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub = SliceServiceStub(channel)
        session = await RawSession.open(stub)
        await session.change(declare("x", "y"))
        await session.attach([b"x"])
        share = broker.dispatcher.shares.attached
        share.limit_bytes = share.used_bytes
        with pytest.raises(ResourceExhausted, match="memory of attached queues"):
            await session.change(bind("x", "k"))
        await session.change(bind("y", "k"))
        share.limit_bytes += 1 << 20
        await session.change(bind("x", "k"))
