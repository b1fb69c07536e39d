"""While the disk is full a batch has only what frees room, and what is held back is answered with the batch."""

from __future__ import annotations

import re

import pytest

from shoal_contract.errors import ResourceExhausted, Unavailable
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.journal_room import FREEING
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.node.commit import Commit, Item
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.changes import parse_change
from shoal_slice_node.core.verbs.table import VERBS

from .core_driver import CoreDriver, acks, bind, configure, declare, drop, farewell, publish, purge, unbind

SHORT = ResourceExhausted("the disk is full", subject="disk bytes")
STILL = ResourceExhausted("the disk is full to the last byte", subject="disk bytes")
OVER = Unavailable("the slice stops", subject="slice")
HELD_KINDS = {Kind.CHANGE, Kind.RETRY, Kind.FAREWELL}
"""What the guide for administrators leaves out of what goes on."""
FREES = {
    "declare": ([declare("r")], False),
    "bind": ([bind("q", "l")], False),
    "publish": ([publish("k", b"body")], False),
    "configure": ([configure("k", KeyOptions(history_messages=5))], False),
    "farewell": ([farewell("q", key="k", body=b"gone", after_s=5)], False),
    "ack": ([acks(("q", "k", 1, 2))], True),
    "unbind": ([unbind("q", "k")], True),
    "purge": ([purge("q")], True),
    "drop": ([drop("q")], True),
    "acks and a drop": ([acks(("q", "k", 1, 2)), drop("q")], True),
    "a publish, then an ack": ([publish("k", b"body"), acks(("q", "k", 1, 2))], False),
    "an ack, then a publish": ([acks(("q", "k", 1, 2)), publish("k", b"body")], False),
    "nothing": ([], False),
}
"""Steps of a change, and whether it is taken on a full disk."""


class Short:
    """The commits of a node on a full disk. `told`: what the items heard, by their names, in order."""

    def __init__(self) -> None:
        self.core = CoreDriver()
        self.core.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b"))
        self.commit: Commit = self.core.node.commit
        self.given: list[int] = []
        self.commit._let_go = self.given.append
        self.told: dict[str, list[object]] = {}

    def item(self, name: str, kind: int = Kind.CHANGE, payload: bytes | None = None) -> Item:
        told = self.told.setdefault(name, [])
        return Item(kind, payload, lambda _: told.append("applied"), told.append)

    def change(self, name: str, *steps: wire.Step) -> Item:
        data = wire.Change(steps=steps).SerializeToString()
        item = self.item(name, payload=encode_change(ChangeHead(NO_PRODUCER, 0, 0), data))
        item.checked = parse_change(data)
        return item

    def gathers(self, item: Item) -> bool:
        """Returns whether the item is in the batch, and not held back."""
        self.commit.submit(item)
        batch = self.commit.gather(1_000, short=SHORT)
        assert len(batch.held) + len(batch.entries) == 1 and bool(batch.data) == (batch.last_lsn >= batch.first_lsn)
        return not batch.held


@pytest.mark.parametrize("name", FREES)
def test_changes_that_free_room_alone_are_taken(name: str) -> None:
    short = Short()
    steps, taken = FREES[name]
    assert short.gathers(short.change(name, *steps)) is taken
    short.commit.written()
    while short.commit.to_apply:
        short.commit.step()
    assert short.told[name] == (["applied"] if taken else [SHORT])


def test_the_verbs_that_free_room_are_those_that_operators_are_told_of() -> None:
    assert {f"{verb.name}s" for verb in VERBS.values() if verb.frees} == set(re.split(", | and ", FREEING))
    assert {verb.name for verb in VERBS.values() if not verb.frees} - set(FREES) == {"import"}, "each has its line"


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("late", [False, True], ids=["payload", "made when it is written"])
def test_records_of_the_node_that_free_room_are_written(kind: Kind, late: bool) -> None:
    short = Short()
    item = short.item("record", kind, None if late else b"payload")
    item.make = (lambda: b"payload") if late else None
    assert short.gathers(item) is (kind not in HELD_KINDS)


def test_what_is_not_journaled_goes_on() -> None:
    """Attaches, pulls, reads, live publishes: consumers that come are served."""
    short = Short()
    done: list[str] = []

    def work() -> Work[Effects]:
        done.append("read")
        yield
        return Effects()

    read = short.item("read", 0)
    read.work, read.work_bytes = work, 100
    assert short.gathers(read)
    short.commit.written()
    while short.commit.to_apply:
        short.commit.step()
    assert short.told == {"read": ["applied"]} and done == ["read"]
    assert short.gathers(short.item("in its place", 0))


@pytest.mark.parametrize("how", ["written", "refused", "end"])
def test_what_is_held_back_is_answered_once_and_gives_its_room_back(how: str) -> None:
    short = Short()
    commit = short.commit
    for name, steps in (("publish", [publish("k", b"c")]), ("drop", [drop("q")]), ("bind", [bind("q", "l")])):
        item = short.change(name, *steps)
        item.large_bytes = 70_000
        commit.submit(item, name)
    batch = commit.gather(1_000, short=SHORT)
    assert len(batch.held) == 2 and batch.first_lsn == batch.last_lsn
    assert short.given == [70_000] * 3, "a publisher that tries again would fill the room for good"
    assert short.told == {"publish": [], "drop": [], "bind": []}
    if how == "written":
        commit.written()
        commit.step()
        assert short.told == {"publish": [SHORT], "drop": ["applied"], "bind": [SHORT]}
    elif how == "refused":
        commit.refused(STILL)
        assert short.told == {"publish": [SHORT], "drop": [STILL], "bind": [SHORT]}
    else:
        commit.end(OVER, OVER)
        assert short.told == {"publish": [OVER], "drop": [OVER], "bind": [OVER]}
    assert not commit and not commit.to_apply and len(short.given) == 3
