"""Binds of queues that are consumed, while memory of attached queues is full: each is refused by itself, and a repeat
is answered as before."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal_contract.errors import Malformed, NoSuchQueue, ResourceExhausted, TooLarge, from_wire
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, decode_change, encode_change
from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.node.limited_binds import check_imports, limit_binds
from shoal_slice_node.core.node.unused_drops import UnusedDrops
from shoal_slice_node.core.verbs.bind import BIND, LIMITED_BIND
from shoal_slice_node.core.verbs.changes import check_change, parse_change

from .brokers import connected, running
from .core_driver import CoreDriver, bind, declare, publish
from .raw_session import RawSession


@asynccontextmanager
async def full(folder: Path, producer: bytes = b"") -> AsyncIterator[tuple[Broker, RawSession, Share]]:
    """A slice without room for more of `x`, which is bound to `old` and attached; `y` is not consumed."""
    async with running(folder) as broker, connected(broker, folder) as channel:
        session = await RawSession.open(SliceServiceStub(channel), producer=producer)
        await session.change(declare("x", "y"), bind("x", "old"))
        await session.attach([b"x"])
        share = broker.dispatcher.shares.attached
        share.limit_bytes = share.used_bytes
        yield broker, session, share


def refused(outcome: wire.Outcome) -> list[list[int]]:
    """The requests of each step that were refused, all for want of room."""
    for step in outcome.steps:
        assert all("no room for more bindings" in one.error.message for one in step.refusals)
    return [[one.request for one in step.refusals] for step in outcome.steps]


async def ask(session: RawSession, *steps: wire.Step, atomic: bool = False) -> wire.Outcome:
    change = wire.Change(steps=steps, atomic=atomic).SerializeToString()
    return wire.Outcome.FromString((await session.ask(wire.SessionRequest(change=change))).outcome)


async def test_only_binds_of_consumed_queues_are_refused_in_a_frame_of_many_requests(tmp_path: Path) -> None:
    """All that was gathered into the frame failed with them: publishes of others, and the drops that make room."""
    async with full(tmp_path) as (broker, session, share):
        both = wire.Step(binds=wire.Binds(queues=[b"y", b"x"], key_counts=[1, 2], keys=[b"k", b"old", b"k"]))
        outcome = await ask(session, publish("old", b"1"), both, declare("z"), bind("x", "old"), bind("x", "old", "k"))
        assert refused(outcome) == [[], [1], [], [], [0]]
        assert broker.state.tables.queue_by_name.get(b"z") is not None
        error = from_wire(outcome.steps[1].refusals[0].error)
        assert isinstance(error, ResourceExhausted) and error.subject == "x"
        share.limit_bytes += 1 << 20
        assert refused(await ask(session, bind("x", "k"))) == [[]]


@pytest.mark.parametrize("start", [wire.START_UNSPECIFIED, wire.START_EARLIEST, wire.START_OFFSET, wire.START_AGE])
async def test_a_bind_from_any_start_is_refused(tmp_path: Path, start: wire.Start.ValueType) -> None:
    async with full(tmp_path) as (_, session, _):
        await ask(session, bind("y", "k"), publish("k", b"1"))
        outcome = await ask(session, bind("y", "k", start=start, value=1), bind("x", "k", start=start, value=1))
        assert refused(outcome) == [[], [0]]


async def test_a_repeat_of_a_change_is_answered_as_before_whatever_room_is_left(tmp_path: Path) -> None:
    """It was refused, and who then did the transaction again had it twice."""
    producer = uuid.uuid4().bytes
    async with full(tmp_path, producer) as (broker, session, share):
        share.limit_bytes += 1
        steps = publish("old", b"once"), bind("x", "k")
        first = await ask(session, *steps, atomic=True)
        assert share.used_bytes > share.limit_bytes
        session._sequence -= 1
        assert await ask(session, *steps, atomic=True) == first
        with pytest.raises(ResourceExhausted, match="nothing of it was done"):
            await ask(session, publish("old", b"new"), bind("x", "l"), atomic=True)
        assert broker.state.tables.key.get(b"l") is None
        await session.read_until(lambda: bool(session.deliveries))
        assert session.offsets(1) == [1]


async def test_a_repeat_is_answered_while_the_slice_takes_no_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with full(tmp_path, uuid.uuid4().bytes) as (broker, session, _):
        first = await ask(session, publish("old", b"once"))
        refused = await ask(session, publish("nobody", b"x"))
        monkeypatch.setattr(type(broker.checkpoints), "refusal", "checkpoints fail")
        session._sequence -= 2
        assert await ask(session, publish("old", b"once")) == first
        assert await ask(session, publish("nobody", b"x")) == refused
        with pytest.raises(ResourceExhausted, match="takes no changes now"):
            await ask(session, publish("old", b"new"))


async def test_a_refused_transaction_is_refused_again_while_no_changes_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with full(tmp_path, uuid.uuid4().bytes) as (broker, session, _):
        for _ in range(2):
            with pytest.raises(NoSuchQueue, match="nothing of it was done"):
                await ask(session, bind("not there", "k"), atomic=True)
            session._sequence -= 1
            monkeypatch.setattr(type(broker.checkpoints), "refusal", "checkpoints fail")


def test_the_record_says_it_to_every_node_alike() -> None:
    leader, follower = CoreDriver(), CoreDriver()
    for core in (leader, follower):
        core.change(declare("x", "y"), bind("x", "old"))
    leader.attach(leader.session(), "x")
    share = leader.dispatcher.shares.attached
    share.limit_bytes = share.used_bytes
    data = wire.Change(steps=[bind("y", "k"), bind("x", "k")]).SerializeToString()
    payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
    item = Item(Kind.CHANGE, payload, lambda _: None, lambda _: None, parse_change(data))
    limit_binds(leader.dispatcher.registry, item)
    assert item.payload is not None and item.payload != payload
    written = decode_change(item.payload)[1]
    assert check_change(written).operations == parse_change(data).operations
    outcomes = [core.record(Kind.CHANGE, item.payload).outcome for core in (leader, follower)]
    assert outcomes[0] is not None and outcomes[0] == outcomes[1]
    assert refused(wire.Outcome.FromString(outcomes[0])) == [[], [0]]
    with pytest.raises(Malformed, match="limited_binds"):
        parse_change(written)


def test_a_chunk_of_an_import_waits_until_there_is_room() -> None:
    core = CoreDriver()
    core.change(declare("x", "y"))
    core.attach(core.session(), "x")
    share = core.dispatcher.shares.attached
    check_imports(core.dispatcher.registry, wire.Imports(queues=[b"y", b"x"]))
    share.limit_bytes = share.used_bytes
    check_imports(core.dispatcher.registry, wire.Imports(queues=[b"y", b"new"]))
    with pytest.raises(ResourceExhausted, match="go on with this chunk later"):
        check_imports(core.dispatcher.registry, wire.Imports(queues=[b"y", b"x"]))


def test_what_the_leader_adds_to_a_frame_at_the_bound_of_fields_is_replayed() -> None:
    """It was one field too many on replay: what the frame did was gone after a restart, with what others had of it."""
    core = CoreDriver()
    core.change(declare("x"), bind("x", "old"))
    core.attach(core.session(), "x")
    share = core.dispatcher.shares.attached
    share.limit_bytes = share.used_bytes
    unknown = b"\xf8\x3f\x01"  # Field 1,023, which no version has.
    name = "k" * 200
    steps = [wire.Step(drops=wire.Drops(queues=[b"x"], if_unused=True))]
    steps += [bind("x", f"{name}{number}", start=wire.START_OFFSET, value=1) for number in range(990)]
    data = wire.Change(steps=steps).SerializeToString()
    with pytest.raises(TooLarge):
        parse_change(data + unknown * 8_000)
    assert passes(data)
    some = 1 << 12
    while some:
        if passes(data + unknown * some):
            data += unknown * some
        some //= 2
    assert not passes(data + unknown)
    checked, payload = parse_change(data), encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
    item = Item(Kind.CHANGE, payload, lambda _: None, lambda _: None, checked)
    UnusedDrops(core.dispatcher, lambda: 0).decide(item)
    limit_binds(core.dispatcher.registry, item)
    assert item.payload is not None and len(item.payload) > len(payload)
    assert check_change(decode_change(item.payload)[1]).operations == checked.operations


def passes(data: bytes) -> bool:
    try:
        parse_change(data)
    except TooLarge:
        return False
    return True


@pytest.mark.parametrize("refused", ["", "a", "b", "c", "ab", "ac", "abc"])
def test_what_a_limited_bind_names_is_what_it_binds(refused: str) -> None:
    """The archive and the census read memberships of it: keys of a refused queue were those of the next one."""
    keys = {"a": ["a1", "a2"], "b": [], "c": ["c1"], "d": ["d1", "d2"]}

    def binds_of(queues: str) -> wire.Binds:
        return wire.Binds(
            queues=[queue.encode() for queue in queues],
            key_counts=[len(keys[queue]) for queue in queues],
            keys=[key.encode() for queue in queues for key in keys[queue]],
            start=wire.START_LAST,
            start_value=3,
        )

    limited = wire.LimitedBinds(binds=binds_of("abcd"), no_room=[queue.encode() for queue in refused])
    left = "".join(queue for queue in "abcd" if queue not in refused)
    assert LIMITED_BIND.columns(limited) == BIND.columns(binds_of(left))
