"""Requests to changes, side by side with the slice's own engine on random histories."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from shoal_contract.journal_record import Record
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from shoal_pipeline.census.memberships import Change, Request, changes_of
from shoal_slice_node.core.apply.records import (
    NO_PRODUCER,
    ChangeHead,
    Expired,
    Kind,
    decode_expire,
    encode_change,
    encode_expire,
    encode_ownership,
)
from shoal_slice_node.core.limits import BINDINGS_PER_QUEUE_MAX
from shoal_slice_node.core.rows.key_row import decode_key
from shoal_slice_node.core.rows.queue_row import name_of
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.verbs.engine import Engine

from .archives import binds, declares, drops, unbinds

PARTITIONS = 4
OWNED = b"\x01\x01\x01\x00"
QUEUES = [b"q%d" % number for number in range(4)] + [b"x" * 255]
TRANSIENT = QUEUES[:2]
KEYS = [b"k%d" % number for number in range(7)] + [b"{k1}x", b"x", b"y" * 255]
"""A journal holds no names but such: a slice refuses a frame with others as a whole, and does not write it."""


def steps(random: Random) -> Iterator[wire.Step]:
    for _ in range(random.randint(1, 4)):
        queue, keys = random.choice(QUEUES), random.choices(KEYS, (20,) * 8 + (1,) * 2, k=random.randint(0, 4))
        kind = random.random()
        if kind < 0.2:
            step = declares(queue)
            step.declares.options.expires_after_s = 60 * (queue in TRANSIENT)
            yield step
        elif kind < 0.6:
            yield binds(queue, *keys)
        elif kind < 0.8:
            yield unbinds(queue, *keys)
        elif kind < 0.9:
            queue = random.choice(QUEUES[2:])  # An import makes durable queues.
            yield wire.Step(imports=wire.Imports(queues=[queue], key_counts=[len(keys)], keys=keys))
        else:
            yield drops(queue)


def requests_of(lsn: int, change: wire.Change) -> Iterator[Request]:
    """As the data source gives them: one for each key."""
    for number, step in enumerate(change.steps):
        kind = (step.WhichOneof("step") or "")[:-1]
        body = getattr(step, f"{kind}s")
        if kind in ("declare", "drop"):
            for request, queue in enumerate(body.queues):
                yield Request(queue, "s01", lsn, number, request, lsn, kind, None, None, False)
            continue
        if kind == "import" and not body.keys:
            yield Request(body.queues[0], "s01", lsn, number, 0, lsn, kind, None, None, False)
        for key in body.keys:
            partition = partition_of(key, PARTITIONS)
            owned = bool(OWNED[partition])
            yield Request(body.queues[0], "s01", lsn, number, 0, lsn, kind, key, partition, owned)


def named(engine: Engine, queue_id: bytes) -> bytes:
    return name_of(engine.state.tables.queue.get(queue_id) or b"")


def expiries_of(lsn: int, payload: bytes) -> Iterator[Request]:
    decided_lsn, queues = decode_expire(payload)
    for request, (_, queue) in enumerate(queues):
        yield Request(queue, "s01", lsn, 0, request, lsn, "expire", None, None, False, decided_lsn)


@pytest.mark.parametrize("seed", range(5))
def test_changes_agree_with_the_slices_own_tables(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201
    random = Random(seed)
    engine = Engine(MemoryTables())
    engine.apply(Record(Kind.OWNERSHIP, 0, 1, 1, 1, encode_ownership(1, OWNED)))
    requests: list[Request] = []
    members: set[tuple[bytes, bytes]] = set()
    queues: set[bytes] = set()
    changed = 0
    expiry = b""
    for lsn in range(2, 240):
        if lsn % 9 == 0:  # The leader decides. Until that is journaled, changes may be, too.
            expiring = [
                Expired(queue_id, named(engine, queue_id)) for queue_id, _ in engine.state.tables.transient.scan()
            ]
            expiry = encode_expire(expiring, lsn - 1)
        elif lsn % 9 == random.randint(1, 3) and expiry:
            engine.apply(Record(Kind.EXPIRE, 0, lsn, 1, lsn, expiry))
            requests += expiries_of(lsn, expiry)
            expiry = b""
            continue
        change = wire.Change(steps=steps(random))
        engine.apply(
            Record(
                Kind.CHANGE, 0, lsn, 1, lsn, encode_change(ChangeHead(NO_PRODUCER, 0, 0), change.SerializeToString())
            )
        )
        requests += requests_of(lsn, change)
        if lsn % 7 == 0:
            found = list(changes_of(sorted(requests, key=lambda one: one[:5])))
            queues, members = replayed(found)
            changed = len(found)
            assert (queues, members) == tables_of(engine), f"after LSN {lsn}"
    assert changed > 150


def replayed(changes: list[Change]) -> tuple[set[bytes], set[tuple[bytes, bytes]]]:
    """Each change must change something."""
    queues: set[bytes] = set()
    members: set[tuple[bytes, bytes]] = set()
    for change in sorted(changes, key=lambda one: (one.lsn, one.step, one.request)):
        if change.key is None:
            assert (change.queue in queues) == (change.delta < 0)
            (queues.add if change.delta > 0 else queues.remove)(change.queue)
        else:
            pair = (change.queue, change.key)
            assert (pair in members) == (change.delta < 0)
            assert change.partition == partition_of(change.key, PARTITIONS)
            (members.add if change.delta > 0 else members.remove)(pair)
    return queues, members


def tables_of(engine: Engine) -> tuple[set[bytes], set[tuple[bytes, bytes]]]:
    tables = engine.state.tables
    names = {queue_id: name for name, queue_id in tables.queue_by_name.scan()}
    members = {
        (names[queue_id], full_name[2:])
        for full_name, row in tables.key.scan()
        for queue_id in tables.binding.members(decode_key(row).id)[0]
    }
    return set(names.values()), members


def request(lsn: int, kind: str, key: bytes | None = None, queue: bytes = b"anna") -> Request:
    return Request(queue, "s01", lsn, 0, 0, lsn, kind, key, 0, True)


@pytest.mark.parametrize("since", ["declare", "bind", "import"])
def test_an_expiry_leaves_a_queue_that_was_made_or_renewed_since(since: str) -> None:
    history = [request(1, "declare"), request(2, "bind", b"x")]
    expiry = request(9, "expire")._replace(offset=5)
    assert [change.delta for change in changes_of([*history, expiry])] == [1, 1, -1, -1]
    if since == "import":
        history.append(request(6, "drop"))
    history.append(request(7, since, None if since == "declare" else b"x"))
    assert sum(change.delta for change in changes_of([*history, expiry])) == 2


def test_an_archive_that_begins_later_takes_its_queues_as_declared() -> None:
    history = [request(5, "unbind", b"x"), request(6, "bind", b"x"), request(7, "drop"), request(8, "bind", b"y")]
    assert [(one.lsn, one.key, one.delta) for one in changes_of(history, frozenset(("s01",)))] == [
        (5, None, 1),
        (6, b"x", 1),
        (7, b"x", -1),
        (7, None, -1),
    ]
    assert list(changes_of(history)) == []


def test_a_bind_beyond_the_limit_of_a_queue_changes_nothing() -> None:
    many = [request(2, "import", b"%d" % number) for number in range(BINDINGS_PER_QUEUE_MAX)]
    changes = list(changes_of([*many, request(3, "bind", b"x"), request(4, "unbind", b"7"), request(5, "bind", b"x")]))
    assert [(one.lsn, one.key, one.delta) for one in changes[-2:]] == [(4, b"7", -1), (5, b"x", 1)]
    assert len(changes) == BINDINGS_PER_QUEUE_MAX + 3
