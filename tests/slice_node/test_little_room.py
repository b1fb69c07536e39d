"""What a node takes while its journal has little room, and that all that it does not take is answered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from shoal_contract.errors import NoSuchQueue, ResourceExhausted, ShoalError, Unavailable
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.checkpoints import Checkpoints
from shoal_slice_node.adapters.journal_room import FREEING
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.node.commit import Batch, Commit, Item
from shoal_slice_node.core.verbs.changes import parse_change
from shoal_slice_node.core.verbs.table import VERBS

from .brokers import connected, running
from .core_driver import CoreDriver, acks, bind, configure, declare, drop, publish, purge, unbind
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

SHORT = ResourceExhausted("the disk is full", subject="disk bytes")
TAKEN, REFUSED = "applied", "ResourceExhausted"
NOT_FREEING = {Kind.CHANGE, Kind.RETRY, Kind.FAREWELL}
"""Changes are looked at by their verbs. The others publish."""


class Room:
    """A commit of its own, and what became of each item."""

    def __init__(self) -> None:
        core = CoreDriver()
        core.change(declare("q"), bind("q", "k"), publish("k", b"x"))
        self.commit: Commit = core.node.commit
        self.given: list[int] = []
        self.commit._let_go = self.given.append
        self.heard: dict[str, str] = {}

    def submit(
        self, name: str, kind: int, payload: bytes | None, steps: tuple[wire.Step, ...] = (), large_bytes: int = 0
    ) -> None:
        def failed(error: ShoalError) -> None:
            assert name not in self.heard
            self.heard[name] = type(error).__name__

        checked = None
        if steps:
            data = wire.Change(steps=steps).SerializeToString()
            checked, payload = parse_change(data), encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
        item = Item(kind, payload, lambda _: self.heard.update({name: TAKEN}), failed, checked, large_bytes=large_bytes)
        self.commit.submit(item, name)

    def change(self, name: str, *steps: wire.Step, large_bytes: int = 0) -> None:
        self.submit(name, Kind.CHANGE, None, steps, large_bytes)

    def gather(self) -> Batch:
        return self.commit.gather(1_000, short=SHORT)

    def apply(self) -> None:
        self.commit.written()
        while self.commit.to_apply:
            self.commit.step()


def test_the_verbs_that_free_room_are_those_that_operators_are_told() -> None:
    freeing = {verb.name for verb in VERBS.values() if verb.frees}
    assert freeing == {"ack", "unbind", "purge", "drop"}
    assert all(f"{name}s" in FREEING for name in freeing)


@pytest.mark.parametrize(
    ("steps", "heard"),
    [
        ((acks(("q", "k", 1, 2)),), TAKEN),
        ((unbind("q", "k"),), TAKEN),
        ((purge("q"),), TAKEN),
        ((drop("q"),), TAKEN),
        ((unbind("q", "k"), drop("q")), TAKEN),
        ((publish("k", b"x"),), REFUSED),
        ((bind("q", "other"),), REFUSED),
        ((declare("other"),), REFUSED),
        ((configure("k", KeyOptions(history_messages=1)),), REFUSED),
        ((publish("k", b"x"), acks(("q", "k", 1, 2))), REFUSED),
        ((acks(("q", "k", 1, 2)), publish("k", b"x")), REFUSED),
    ],
)
def test_a_change_is_taken_if_all_of_it_frees_room(steps: tuple[wire.Step, ...], heard: str) -> None:
    room = Room()
    room.change("one", *steps)
    room.gather()
    room.apply()
    assert room.heard == {"one": heard}


@pytest.mark.parametrize("kind", set(Kind) - {Kind.CHANGE})
def test_records_of_the_node_itself_are_written_if_they_free_room(kind: Kind) -> None:
    room = Room()
    room.submit("own", kind, b"payload")
    batch = room.gather()
    taken = kind not in NOT_FREEING
    assert (len(batch.entries), len(batch.held), bool(batch.data)) == (taken, not taken, taken)


def test_what_needs_no_room_goes_on() -> None:
    """Attaches, describes, pulls, and live publishes."""
    room = Room()
    room.submit("reads", 0, None)
    room.change("publishes", publish("k", b"x"))
    room.gather()
    room.apply()
    assert room.heard == {"reads": TAKEN, "publishes": REFUSED}


@pytest.mark.parametrize("how", ["written", "refused", "ended"])
def test_what_is_refused_is_answered_and_gives_its_room_back(how: str) -> None:
    room = Room()
    room.change("publishes", publish("k", b"x"), large_bytes=70_000)
    room.change("drops", drop("q"), large_bytes=80_000)
    batch = room.gather()
    assert batch.data and room.given == [70_000, 80_000]
    if how == "written":
        room.apply()
        assert room.heard == {"publishes": REFUSED, "drops": TAKEN}
    elif how == "refused":
        room.commit.refused(ResourceExhausted("it is full all the same", subject="disk bytes"))
        assert room.heard == {"publishes": REFUSED, "drops": REFUSED}
    else:
        room.commit.end(Unavailable("over"), Unavailable("over"))
        assert room.heard == {"publishes": "Unavailable", "drops": "Unavailable"}
    assert sum(room.given) == 150_000


@pytest.mark.parametrize("refuses", [True, False])
async def test_acks_are_refused_only_where_not_even_what_frees_room_is_taken(
    refuses: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows wait for a checkpoint as those of drops do: those of a session, and unary ones."""
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub: SliceServiceAsyncStub = SliceServiceStub(channel)
        session = await RawSession.open(stub)
        await session.change(declare("q"), bind("q", "k"), publish("k", b"x"), publish("k", b"x"))
        await session.attach([b"q"])
        await session.read_until(lambda: len(session.offsets(1)) == 2)
        monkeypatch.setattr(Checkpoints, "refusal", "checkpoints fail")
        monkeypatch.setattr(Checkpoints, "freeing_refusal", "checkpoints fail" if refuses else "")
        own = wire.Ack(key=b"k", low=1, to=2, handles=[1])
        unary = wire.AckRequest(acks=[wire.Ack(key=b"k", low=2, to=3, queues=[b"q"])])
        if refuses:
            with pytest.raises(ResourceExhausted, match="checkpoints fail"):
                await session.ack(own)
            with pytest.raises(grpc.aio.AioRpcError, match="checkpoints fail"):
                await stub.Ack(unary)
        else:
            await session.ack(own)
            await stub.Ack(unary)
        describe = wire.DescribeRequest(describe=wire.Describe(queues=[b"q"]))
        (queue,) = (await stub.Describe(describe)).description.queues
        assert queue.messages == (2 if refuses else 0)
        session.call.cancel()


async def test_what_frees_room_is_taken_while_checkpoints_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "refusal", "checkpoints fail")
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        session = await RawSession.open(SliceServiceStub(channel))
        with pytest.raises(ResourceExhausted, match="checkpoints fail"):
            await session.change(declare("q"))
        with pytest.raises(NoSuchQueue):
            await session.change(drop("q"))
        session.call.cancel()
