"""Walks of docs/developers/walks.md meet the slice node's functions that they list, in order."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import shoal_slice_node
from shoal_contract.errors import ResourceExhausted
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.limits import INLINE_STREAMS_MAX
from shoal_slice_node.core.turns import Source

from .brokers import connected, running
from .core_driver import CoreDriver, bind, configure, declare, publish
from .raw_session import RawSession
from .told_watch import ToldWatch, settle

Call = tuple[str, str]
"""File and function."""

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "slice_node" / "shoal_slice_node"
LATER = {("adapters/checkpoints.py", "run"), ("storage/checkpoint_writer.py", "write")}
"""Steps of a checkpoint, which comes apart from the walk."""
SESSION_END = "The end of a session with messages out"
CORE_ENDS_SESSION = ("core/dispatch/attaching.py", "close")
WAIT_S = 60


def steps(title: str) -> list[Call]:
    """The slice node's steps of one walk. Those that its words name are taken by some only."""
    text = (ROOT / "docs" / "developers" / "walks.md").read_text(encoding="utf-8")
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    where = "\n".join(row.rstrip("| ").rpartition("|")[2] for row in section.splitlines() if row.startswith("|"))
    found = re.findall(r"`([a-z_/]+\.py)::([a-z_]+)`", where)
    return [(file, name) for file, name in found if (PACKAGE / file).is_file() and (file, name) not in LATER]


def first_unmet(walk: list[Call], calls: list[Call]) -> Call | None:
    """The first step that no call meets after the calls that met the steps before it."""
    rest = iter(calls)
    return next((step for step in walk if step not in rest), None)


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """The calls of the slice node's functions, in all threads that begin meanwhile; those that go on count again."""
    calls: list[Call] = []
    prefix = f"{Path(shoal_slice_node.__file__).parent}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(prefix):
            calls.append((frame.f_code.co_filename.removeprefix(prefix), frame.f_code.co_name))

    before: Callable[..., object] | None = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def consume(session: RawSession, offset: int) -> None:
    """Waits for this message, and acks it."""
    await session.read_until(lambda: offset in session.offsets(1), WAIT_S)
    await session.ack(wire.Ack(key=b"k", to=offset + 1, handles=[1]))


async def other_walks(session: RawSession, calls: list[Call]) -> dict[str, list[Call]]:
    """What is met by a pull, by a lease that ends, by a transient queue that is consumed, left, and dropped, by a
    message that a full inbox gives back, and by a queue that is dropped while it is consumed."""
    met: dict[str, list[Call]] = {}
    await session.change(declare("p"), bind("p", "pulled"), publish("pulled", b"a"), publish("pulled", b"b"))
    calls.clear()
    await session.ask(wire.SessionRequest(pull=wire.Pull(queue=b"p", lease_ms=200)))
    await session.ack(wire.Ack(key=b"pulled", low=1, to=2, queues=[b"p"]))
    await until(lambda: ("core/dispatch/returns.py", "came_back") in calls)
    met["A pull"] = list(calls)

    calls.clear()
    await session.change(declare("t", expires_after_s=1))
    await session.attach([b"t"], first_handle=7)
    await session.detach(7)
    await until(lambda: ("core/apply/drops.py", "drop_queue") in calls)
    met["The end of a transient queue"] = list(calls)

    await session.change(declare("f"), bind("f", "full"), bind("p", "full"), publish("full", b"a"))
    await session.attach([b"f"], first_handle=8)
    await session.read_until(lambda: session.offsets(8) == [1], WAIT_S)
    calls.clear()
    back = wire.Ack(key=b"full", low=1, to=2, handles=[8])
    await session.ask(wire.SessionRequest(nacks=wire.Nacks(messages=[back], unseen=True, number=1)))
    await session.read_until(lambda: session.offsets(8) == [1, 1], WAIT_S)
    met["A full inbox"] = list(calls)

    calls.clear()
    await next_life(session, calls)
    await until(lambda: first_unmet(steps("A queue's next life"), calls) is None)
    met["A queue's next life"] = list(calls)
    return met


async def next_life(session: RawSession, calls: list[Call]) -> None:
    """Drops a queue that the session consumes, declares it anew, and acks a message of the life that is over. Another
    queue still has to get the message, so its key stays."""
    await session.change(wire.Step(drops=wire.Drops(queues=[b"f"])))
    told = [("core/dispatch/resets.py", "note"), ("core/dispatch/resets.py", "take")]
    await until(lambda: first_unmet(told, calls) is None)
    await session.change(declare("f"))
    await until(lambda: ("core/dispatch/sessions.py", "take_new_parts") in calls)
    acks = wire.Acks(acks=[wire.Ack(key=b"full", low=1, to=2, handles=[8])], resets_seen=0)
    await session.ask(wire.SessionRequest(acks=acks))


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():  # noqa: ASYNC110 - the node's doing
            await asyncio.sleep(0.01)


async def test_the_walks_go_the_way_that_they_tell(tmp_path: Path) -> None:
    met: dict[str, list[Call]] = {}
    with recorded() as calls:
        async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
            session = await RawSession.open(SliceServiceStub(channel))
            await session.change(declare("q"))
            calls.clear()
            await session.attach([b"q"], window_messages=1)
            begun = len(calls)
            await session.change(bind("q", "k"))
            met["A bind"] = calls[begun:]
            begun = len(calls)
            await session.change(publish("k", b"a"), publish("k", b"b"))
            met["A publish"] = calls[begun:]
            for count in (1, 2):  # The second message waits until the window opens, and is read from the log.
                await consume(session, count)
            ack = wire.Ack(key=b"k", low=1, to=3, handles=[1])
            await session.ask(wire.SessionRequest(acks=wire.Acks(acks=[ack], tell_unacked=True)))
            await session.change(publish("k", b"c"))  # The others may have been trimmed before that question.
            await consume(session, 3)
            async with asyncio.timeout(WAIT_S):
                while broker.state.kept.messages:
                    await session.ask(wire.SessionRequest(describe=wire.Describe(keys=[b"k"])))
            await until(lambda: first_unmet(steps("A delivery"), calls) is None)  # A walk over keys comes with a tick.
            met["A delivery"] = met["An ack, until it is durable"] = list(calls)
            met.update(await other_walks(session, calls))
            calls.clear()
            session.call.cancel()
            await until(lambda: ("core/dispatch/leaving.py", "session_ends") in calls)
            ended = list(calls)
    assert first_unmet(steps(SESSION_END)[: steps(SESSION_END).index(CORE_ENDS_SESSION) + 1], ended) is None
    for title, found in met.items():
        walk = steps(title)
        assert len(walk) >= 4, title
        assert first_unmet(walk, found) is None, title


def test_the_end_of_a_session_goes_the_way_that_its_walk_tells() -> None:
    """One that takes turns to end, so that another message of a key comes before them."""
    core = CoreDriver()
    core.change(declare("q", "r"), bind("q", "k"), bind("r", "l"))
    ending, other = core.session(), core.session()
    core.attach(ending, "q", 1)
    core.attach(ending, "r", 2)
    for handle in range(3, INLINE_STREAMS_MAX):
        core.dispatcher.attach(ending, b"none %d" % handle, handle, 1, 1)
    core.change(publish("k", b"1"), publish("l", b"1"))
    assert len(core.take(ending)) == 2
    core.change(publish("k", b"2"))
    assert ending.waiting, "it is not sent"
    core.attach(other, "q", 1)
    core.pump()
    with recorded() as calls:
        core.node.close_session(ending, Source(b"", ending))
        core.change(publish("k", b"3"))
        core.dispatcher._pump._next_kind = 0
        core.pump()
    walk = steps(SESSION_END)
    assert first_unmet(walk[walk.index(CORE_ENDS_SESSION) :], calls) is None
    assert core.take(other) == [("k", 1, b"1"), ("k", 2, b"2"), ("k", 3, b"3")]


def test_a_handle_that_is_used_again_goes_the_way_that_its_walk_tells() -> None:
    """So much is out of its first queue that it comes back in turns, after it was taken out of what waits."""
    core = CoreDriver()
    names = [f"q{number}" for number in range(INLINE_STREAMS_MAX)]
    core.change(declare("q", "other"), bind("q", *names), bind("other", "k"))
    core.change(*(publish(name, b"x") for name in names))
    session = core.session(64 << 20)
    core.attach(session, "q", 1, 100_000, 64 << 20)
    core.pump()
    assert len(session.waiting) == len(names)
    with recorded() as calls:
        core.dispatcher.detach(session, 1)
        core.attach(session, "other", 1)
        core.dispatcher.take(session, 1 << 20)
        core.pump()
    assert first_unmet(steps("A handle that is used again"), calls) is None


def test_a_publish_to_a_full_key_goes_the_way_that_its_walk_tells() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), configure("k", KeyOptions(capacity_messages=1)), publish("k", b"1"))
    session = core.session()
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "k", 1, 2)
    core.flush()
    with recorded() as calls:
        assert core.change(publish("k", b"2")).steps[0].refusals
        core.trim()
        assert not core.change(publish("k", b"2")).steps[0].refusals
    assert first_unmet(steps("A publish to a full key"), calls) is None


def test_a_change_of_a_watched_key_goes_the_way_that_the_walk_tells() -> None:
    """The core's part."""
    core = CoreDriver()
    core.change(declare("a", "b"))
    with recorded() as calls:
        watch = ToldWatch(core, key="k")
        settle(core)
        core.change(bind("a", "k"))
        core.attach(core.session(), "a")
        core.change(bind("b", "k"))
        settle(core)
        watch.take()
    walk = [(file, name) for file, name in steps("A watch") if file.startswith("core/")]
    assert len(walk) >= 10 and first_unmet(walk, calls) is None
    assert watch.members == {"a": True, "b": False}


@pytest.mark.parametrize("walk", ["ba", "abd", "aab"])
def test_a_step_that_is_not_met_in_order_is_found(walk: str) -> None:
    assert first_unmet([("f", name) for name in walk], [("f", name) for name in "abc"]) is not None


def test_a_session_that_waits_for_room_goes_the_way_that_its_walk_tells() -> None:
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=100_000))
    core.change(declare(*"abc"), *(bind(name, name) for name in "abc"))
    core.change(*(publish(key, bytes(60_000)) for key in "aabbcc"))
    sessions = [core.session(1 << 20, connection) for connection in "abc"]
    with recorded() as calls:
        for session, queue in zip(sessions, "abc", strict=True):
            core.attach(session, queue)
        core.pump()
        taken = core.dispatcher.take(sessions[0], 1 << 20)
        core.dispatcher.sent(sessions[0], taken.cost_bytes)
        core.pump()
    assert first_unmet(steps("A session that waits for room"), calls) is None


def test_the_end_of_a_session_for_done_ranges_goes_the_way_that_its_walk_tells() -> None:
    core = CoreDriver()
    core.change(declare("q", "small"), bind("q", "k"), publish("k", *[b""] * 999))
    session, share = core.session(), core.dispatcher.shares.attached
    core.attach(session, "q")
    core.take(session)
    with recorded() as calls:
        for offset in range(2, 999, 2):
            core.ack(session, "k", offset, offset + 1)
        share.limit_bytes = share.used_bytes
        with pytest.raises(ResourceExhausted):
            core.attach(core.session(), "small")
        core.dispatcher.relieve()
        core.pump()
        assert session.ended_by is not None
        core.dispatcher.close(session)
        core.settle()
    assert first_unmet(steps("The end of a session for done ranges"), calls) is None
