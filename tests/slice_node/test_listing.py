"""Lists and counts of one slice, with rows in the delta, the frozen delta and the checkpoint: against full scans.

Every implementation of tables: in memory, a delta over memory, a delta over LMDB with its real checkpointer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from shoal_contract.errors import Malformed, NoSuchQueue, NotOwner
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.apply import lookups
from shoal_slice_node.core.apply.kept import Kept
from shoal_slice_node.core.apply.records import Kind, encode_ownership
from shoal_slice_node.core.limits import LIST_RANGES_COST_PER_STEP_MAX, WALKED_RANGES_PER_STEP
from shoal_slice_node.core.read import listing
from shoal_slice_node.core.read.listing import ListedBinding, Page, list_bindings, list_keys, list_members, list_queues
from shoal_slice_node.core.read.reading import describe_queue
from shoal_slice_node.core.rows.detail_row import Detail, decode_detail
from shoal_slice_node.core.rows.key_row import ID, decode_key
from shoal_slice_node.core.rows.queue_row import name_of
from shoal_slice_node.core.rows.small_rows import KEPT
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import finish

from .core_driver import CoreDriver, bind, declare, drop, every_second, publish, purge, unbind, with_done
from .memory_base import MemoryBase

SEEDS = range(4)
QUEUES = [f"{letter}-{number}" for letter in ("q", "qa", "z") for number in range(12)]
KEYS = [f"{letter}-{number}" for letter in ("k", "kk", "x") for number in range(20)]
LIMITS = (1, 2, 7, 1000)
RANGES = 1_500


def page(work: Page[listing.Item]) -> tuple[list[listing.Item], bytes]:
    return finish(work)


class Life:
    """Random changes on a core, and what its lists must say."""

    def __init__(self, tables: Tables, seed: int) -> None:
        self.core = CoreDriver(tables)
        self.random = Random(seed)
        self.session = self.core.session()

    def steps(self, count: int) -> None:
        actions = (self._declare, self._bind, self._bind, self._unbind, self._publish, self._consume, self._drop)
        for _ in range(count):
            self.random.choice(actions)(self.random.choice(QUEUES), self.random.choice(KEYS))
        if self.random.random() < 0.3:
            self.core.change(purge(self.random.choice(QUEUES)))
        if self.random.random() < 0.5:
            self.core.now_ms += 1000
            self.core.maintain()

    def _declare(self, queue: str, key: str) -> None:
        self.core.change(declare(queue), bind(queue, *self.random.sample(KEYS, 5)))

    def _bind(self, queue: str, key: str) -> None:
        self.core.change(bind(queue, key))

    def _unbind(self, queue: str, key: str) -> None:
        self.core.change(unbind(queue, key, discard=self.random.random() < 0.3))

    def _publish(self, queue: str, key: str) -> None:
        self.core.change(publish(self.random.choice((key, "@" + queue)), *[b"body"] * self.random.randint(1, 3)))

    def _consume(self, queue: str, key: str) -> None:
        self.core.attach(self.session, queue)
        self.core.take(self.session)
        self.core.ack(self.session, key, self.random.choice((0, 2)), self.random.randint(1, 9))
        self.core.dispatcher.detach(self.session, 1)
        self.core.flush()

    def _drop(self, queue: str, key: str) -> None:
        if self.random.random() < 0.3:
            self.core.change(drop(queue))

    def check(self) -> None:
        state, tables = self.core.state, self.core.tables
        queues = [name for name, _ in tables.queue_by_name.scan()]
        keys = sorted((key[2:], tables.binding.count(row[ID])) for key, row in tables.key.scan())
        prefix = self.random.choice((b"", b"q", b"qa", b"k", b"kk-", b"@", b"nothing"))
        assert self.pages(list_queues, prefix) == [name for name in queues if name.startswith(prefix)]
        assert self.pages(list_keys, prefix) == [item for item in keys if item[0].startswith(prefix)]
        self._check_members(self.random.choice(KEYS).encode())
        self._check_bindings(self.random.choice(QUEUES).encode())
        assert tables.queue_by_name.entries() == len(queues)
        assert tables.key.entries() == len(keys)
        assert tables.binding.entries() == len(list(tables.binding.scan()))
        assert (state.kept.messages, state.kept.body_bytes) == self.kept()

    def kept(self) -> tuple[int, int]:
        rows = [decode_key(row) for _, row in self.core.tables.key.scan()]
        messages = sum(row.head - row.low for row in rows)
        return messages, 4 * messages

    def pages(self, make: object, prefix: bytes) -> list[object]:
        found: list[object] = []
        after, limit = b"", self.random.choice(LIMITS)
        while True:
            items, after = page(make(self.core.state, prefix, after, limit))  # type: ignore[operator]
            assert len(items) <= limit
            found += items
            if not after:
                return found

    def _check_members(self, key: bytes) -> None:
        state, tables = self.core.state, self.core.tables
        row = tables.key.get(state.full_name(key))
        ids = [] if row is None else tables.binding.members(row[ID])[0]
        rows = [tables.queue.get(queue_id) for queue_id in ids]
        found: list[bytes] = []
        after = b""
        while True:
            names, after = page(list_members(state, key, after, 3))
            found += names
            if not after:
                break
        assert found == [name_of(row) for row in rows if row is not None]

    def _check_bindings(self, queue: bytes) -> None:
        described = describe_queue(self.core.state, queue, 10_000)
        if not described.exists:
            with pytest.raises(NoSuchQueue):
                page(list_bindings(self.core.state, queue, b"", 1))
            return
        found = []
        after = b""
        while True:
            items, after = page(list_bindings(self.core.state, queue, after, 4))
            found += items
            if not after:
                break
        listed = [(one.key, one.start, one.cursor, one.end, one.messages) for one in found]
        expected = [(one.key, one.start, one.cursor, one.end, one.messages) for one in described.bindings]
        assert sorted(listed) == sorted(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_lists_of_memory_tables_agree_with_the_tables(seed: int) -> None:
    life = Life(MemoryTables(), seed)
    for _ in range(15):
        life.steps(60)
        life.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_lists_of_a_delta_over_memory_agree_with_the_tables(seed: int) -> None:
    base = MemoryBase()
    delta = Delta(base)
    life = Life(delta, seed)
    for _ in range(25):
        life.steps(20)
        life.check()
        life.core.state.kept.save()
        delta.freeze()
        life.steps(20)
        life.check()
        base.checkpoint(delta)
        life.check()


@pytest.mark.parametrize("seed", SEEDS[:2])
async def test_lists_of_a_delta_over_lmdb_agree_with_the_tables(seed: int, tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    life = Life(store.tables, seed)
    for _ in range(8):
        life.steps(30)
        life.check()
        life.core.state.kept.save()
        store.freeze(life.core.state.lsn)
        checkpoint = asyncio.create_task(store.checkpoint())
        while not checkpoint.done():
            life.steps(3)
            life.check()
            await asyncio.sleep(0)
        await checkpoint
        life.check()
    await store.close()


def test_what_is_kept_is_counted_where_a_store_has_no_sum() -> None:
    life = Life(MemoryTables(), 7)
    life.steps(400)
    kept = life.core.state.kept
    assert kept.messages > 0
    kept.save()
    assert (Kept(life.core.tables).messages, Kept(life.core.tables).body_bytes) == life.kept()
    life.core.tables.local_totals.delete(KEPT)
    assert (Kept(life.core.tables).messages, Kept(life.core.tables).body_bytes) == life.kept()


def test_a_list_goes_on_while_a_checkpoint_takes_its_rows() -> None:
    """Rows move from the delta into the base between any two steps, and none is lost or doubled."""
    base = MemoryBase()
    delta = Delta(base)
    core = CoreDriver(delta)
    core.change(*(declare(f"q{number:04}") for number in range(0, 400, 2)))
    delta.freeze()
    base.checkpoint(delta)
    core.change(*(declare(f"q{number:04}") for number in range(1, 400, 2)), drop("q0010"))
    work = list_queues(core.state, b"q", b"", 350)
    names: list[bytes] = []
    for step in range(1000):
        try:
            next(work)
        except StopIteration as done:
            names, _ = done.value
            break
        if step % 2 == 0:
            delta.freeze()
        else:
            base.checkpoint(delta)
    assert names == [b"q%04d" % number for number in range(352) if number != 10][:350]


def test_bindings_of_a_queue_with_many_keys_come_in_bounded_steps() -> None:
    core = CoreDriver()
    keys = [f"k{number}" for number in range(2000)]
    core.change(declare("q"))
    core.change_all(bind("q", key) for key in keys)
    core.change(*(publish(key, b"a") for key in keys[:100]))
    work = list_bindings(core.state, b"q", b"", 1000)
    steps = 0
    while True:
        try:
            next(work)
            steps += 1
        except StopIteration as done:
            items, after = done.value
            break
    assert len(items) == 1000 and after and steps >= 1000 // 64
    rest, end = page(list_bindings(core.state, b"q", after, 1001))
    assert not end
    assert sorted(one.key.decode() for one in [*items, *rest]) == sorted(keys)
    assert sum(one.messages for one in [*items, *rest]) == 100
    assert {one.head - one.cursor for one in [*items, *rest]} == {0, 1}


@pytest.mark.parametrize("tables", [MemoryTables(), Delta(MemoryBase())], ids=["memory", "delta"])
def test_keys_of_other_slices_are_not_listed_and_not_asked_for(tables: Tables) -> None:
    core = CoreDriver(tables)
    core.change(declare("q"), bind("q", *KEYS))
    core.record(Kind.OWNERSHIP, encode_ownership(2, b"\x01\x00\x00\x00"))
    names = [name for name, _ in page(list_keys(core.state, b"", b"", 1000))[0]]
    assert 0 < len(names) < len(KEYS)
    foreign = next(key for key in KEYS if key.encode() not in names)
    with pytest.raises(NotOwner):
        page(list_members(core.state, foreign.encode(), b"", 10))


def test_a_page_keeps_few_of_the_names_that_changed_and_ends_where_it_knows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page kept all names of the delta, 16 MB of 100,000; four pages at a time took 400 MB in pieces."""
    monkeypatch.setattr(listing, "LIST_CHANGED_PER_STEP_MAX", 10)
    core = CoreDriver(Delta(MemoryBase()))
    names = [f"q{number:03}" for number in range(100)]
    core.change(declare(*reversed(names)))
    work, kept = list_queues(core.state, b"q", b"", 5), list[int]()

    def counted(some: Collection[bytes]) -> list[bytes]:
        kept.append(len(some))
        return sorted(some)

    monkeypatch.setattr(listing, "sorted", counted, raising=False)
    for _ in range(10):
        next(work)
    assert 6 < max(kept) <= 6 + 10, "what is kept, and what is looked at"
    core.change(drop(*names[1:5]))
    found, following = page(work)
    assert (found, following) == ([b"q000", b"q005"], b"q005"), "q006 is not known: the page ends before it"
    rest: list[bytes] = []
    while following:
        found, following = page(list_queues(core.state, b"q", following, 5))
        rest += found
    assert rest == [name.encode() for name in names[6:]]


def test_a_cursor_of_another_list_is_refused() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    with pytest.raises(Malformed, match="not of this list"):
        page(list_members(core.state, b"k", b"abc", 10))
    with pytest.raises(Malformed, match="not of this list"):
        page(list_bindings(core.state, b"q", b"abc", 10))


def test_counters_count_what_was_done() -> None:
    core = CoreDriver()
    core.change(declare("q", "r"), bind("q", "a", "b"), bind("nobody", "a", "b"), unbind("q", "b"))
    core.change(publish("a", b"1", b"2"), publish("nowhere", b"3"), wire.Step(drops=wire.Drops(queues=[b"r", b"s"])))
    session = core.session()
    core.attach(session, "q")
    assert len(core.take(session)) == 2
    core.ack(session, "a", 1, 9)
    core.ack(session, "a", 1, 9)
    assert len(core.pull(core.session(), "q", 5)) == 0
    core.change(purge("q"))
    counters = core.state.counters
    assert (counters.declares, counters.binds, counters.unbinds) == (2, 2, 1)
    assert (counters.publishes, counters.chunks) == (3, 2)
    assert (counters.deliveries, counters.acks) == (2, 2), "an ack counts once"
    assert (counters.drops, counters.purges, counters.refusals) == (1, 1, 2)


@pytest.mark.parametrize("unbound", [False, True])
def test_done_ranges_of_listed_bindings_are_decoded_a_bounded_number_at_a_time(unbound: bool) -> None:
    core = CoreDriver()
    keys = [f"k{number}" for number in range(60)]
    core.change(declare("q"), bind("q", *keys))
    core.change_all(publish(key, *[b"a"] * 2 * RANGES) for key in keys)
    with_done(core, "q", keys, every_second(RANGES - 1))
    if unbound:
        core.change(unbind("q", *keys))
    decoded: list[int] = []

    def decode(row: bytes) -> Detail:
        found = decode_detail(row)
        decoded[-1] += len(found.done)
        return found

    work = list_bindings(core.state, b"q", b"", 1000)
    with patch.object(listing, "decode_detail", decode), patch.object(lookups, "decode_detail", decode):
        items: list[ListedBinding] | None = None
        while items is None:
            decoded.append(0)
            try:
                next(work)
            except StopIteration as stop:
                items = stop.value[0]
    assert max(decoded) < WALKED_RANGES_PER_STEP + RANGES and sum(decoded) >= len(keys) * (RANGES - 1)
    assert sorted(one.key.decode() for one in items) == sorted(keys)
    assert {one.messages for one in items} == {RANGES + 1}


def test_a_page_of_partitions_without_keys_takes_few_turns() -> None:
    """Each step waits for its turn: beside long describes, counts of a prefix without keys took 11 s."""
    core = CoreDriver()
    core.state.set_owned(2, b"\x01" * 4096)
    core.change(declare("q"), bind("q", *KEYS))
    steps = sum(1 for _ in list_keys(core.state, b"nothing", b"", 256))
    assert 0 < steps <= 4096 // LIST_RANGES_COST_PER_STEP_MAX + 1
