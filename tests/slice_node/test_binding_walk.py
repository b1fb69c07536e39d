"""Walks over a queue's bindings: each that stays comes once, however the queue grows and shrinks meanwhile, and a walk
keeps no more than where it is."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from random import Random
from zlib import crc32

import pytest

from shoal_contract.errors import Unavailable
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.limits import WALKED_IDS_MAX
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.read.binding_walk import Binding, BindingWalk, bucket_at
from shoal_slice_node.core.read.reading import peek
from shoal_slice_node.core.rows.ids import key_id
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.rows.queue_row import bucket_number
from shoal_slice_node.core.turns import Source, Work
from tests.fuzz.small_limits import patched

from .core_driver import CoreDriver, bind, declare, publish, unbind
from .walked import walk_bindings

STEPS_MAX = 2_000


def test_each_bucket_holds_a_stretch_of_the_order_of_the_walk() -> None:
    keys = [key_id(number % 7, number) for number in range(300)]
    for buckets in (*range(1, 70), 255, 256, 257):
        place, found = 0, list[int]()
        stretches: dict[int, tuple[int, int]] = {}
        while place < 1 << 32:
            number, first, end = bucket_at(place, buckets)
            assert first == place and bucket_at(end - 1, buckets) == (number, first, end)
            stretches[number] = (place, end)
            found.append(number)
            place = end
        assert place == 1 << 32 and sorted(found) == list(range(buckets))
        for key in keys:
            begin, end = stretches[bucket_number(key, buckets)]
            assert begin <= int(f"{crc32(key):032b}"[::-1], 2) < end


def walk_of(core: CoreDriver) -> Iterator[list[Binding]]:
    queue = core.state.load_queue(b"q")
    assert queue is not None
    return walk_bindings(core.state, queue.id)


@pytest.mark.parametrize("ids_kept", [1, WALKED_IDS_MAX])
def test_a_binding_that_stays_comes_once_while_the_queue_grows_and_shrinks(ids_kept: int) -> None:
    """Also where rows have more bindings than a walk keeps the ids of (`ids_kept`)."""
    for seed in range(12):
        with patched({"WALKED_IDS_MAX": ids_kept}):
            walk_among_changes(Random(seed))


def walk_among_changes(random: Random) -> None:
    with patched({"BUCKET_ENTRIES_MEAN": 3, "BUCKET_ENTRIES_LOW": 1, "READ_ROWS_PER_STEP": random.choice((1, 4, 20))}):
        core = CoreDriver()
        stays = [f"s{number}" for number in range(random.choice((3, 60)))]
        others = [f"o{number}" for number in range(120)]
        core.change(declare("q"), bind("q", *stays))
        core.change(*(publish(key, b"x") for key in stays))
        bound: set[str] = set()
        met: list[bytes] = []
        for steps, batch in enumerate(walk_of(core)):
            assert steps < STEPS_MAX, "it goes nowhere"
            met += [binding.key_id for binding in batch]
            assert len(met) <= STEPS_MAX, "it goes round"
            some = random.sample(others, random.choice((0, 5, 40)))
            if random.random() < 0.5:
                core.change(*(bind("q", key) for key in some if key not in bound))
                bound.update(some)
            else:
                core.change(*(unbind("q", key, discard=True) for key in some if key in bound))
                bound.difference_update(some)
        ids = [(core.tables.key.get(core.state.full_name(key.encode())) or b"")[ID] for key in stays]
        assert [met.count(one) for one in ids] == [1] * len(ids)


def test_many_walks_at_a_time_take_little_memory() -> None:
    """250 describes of 5 bytes took a node of 320 MiB to 2,078: each remembered what it had met, 9 MB of 100,000."""
    core = CoreDriver()
    core.change(declare("q"))
    for first in range(0, 4_000, 400):
        core.change(bind("q", *(f"k{number}" for number in range(first, first + 400))))
    walks = [walk_of(core) for _ in range(20)]
    for walk in walks:
        next(walk)
    tracemalloc.start()
    try:
        for _ in range(30):
            for walk in walks:
                next(walk)
        assert tracemalloc.get_traced_memory()[0] < len(walks) * 20_000, "more than the batch that it is at"
    finally:
        tracemalloc.stop()


class Asked:
    """Describes of a queue by one session, and what else it asks for."""

    def __init__(self) -> None:
        self.core, self.source = CoreDriver(), Source("gateway", 1)
        self.core.change(declare("large", "small"), bind("small", "k1"))
        self.core.change(bind("large", *(f"k{number}" for number in range(900))))
        self.done: list[str] = []

    def describe(self, name: str) -> None:
        work = requests.describe(self.core.node, wire.Describe(queues=[name.encode()]))
        self.core.node.add_work(self.source, work.whole(), lambda *_: self.done.append(name), looks=True)

    def other(self) -> None:
        def attach() -> Work[None]:
            for _ in range(3):
                yield

        self.core.node.add_work(self.source, attach(), lambda *_: self.done.append("other"))

    def until(self, count: int) -> None:
        while self.core.node.turns and len(self.done) < count:
            self.core.node.turns.step()


def test_nothing_of_a_session_waits_for_its_look_at_a_large_queue() -> None:
    """Two users of a gateway who asked for a large queue again and again made its other users wait for 0.9 s."""
    asked = Asked()
    for _ in range(4):
        asked.describe("large")
    asked.describe("small")
    assert not asked.core.node.turns.busy(asked.source), "acks would wait"
    asked.other()
    asked.until(2)
    assert asked.done == ["small", "other"]
    asked.core.node.turns.drop(asked.source)
    assert not asked.core.node.turns


def test_nothing_of_a_session_waits_for_its_look_behind_other_work() -> None:
    """Behind a pull, a look stood in order: all pulls of a gateway stood still for 2 s, and those of others."""
    asked = Asked()
    asked.other()
    asked.describe("large")
    asked.other()
    asked.until(2)
    assert asked.done == ["other", "other"]
    asked.until(3)
    assert asked.done[2:] == ["large"]
    asked.other()
    asked.describe("large")
    asked.core.node.turns.drop(asked.source)
    assert not asked.core.node.turns
    asked.other()
    asked.describe("large")
    asked.core.node.turns.end(Unavailable("over"))
    assert asked.done[3:] == ["other", "large"], "they are told of the error"


def test_pulls_of_a_session_wait_for_each_other() -> None:
    """Their answers overtook each other, and took a key's messages alternately."""
    asked = Asked()
    core, order = asked.core, list[int]()
    for _ in range(10):
        core.change(publish("k1", *([b"x"] * 100)))
    session = core.session()
    for number, messages in enumerate((600, 5, 5)):
        work = requests.pull(core.node, session, wire.Pull(queue=b"small", messages_max=messages), 0, 1_000)

        def done(answer: wire.Answer, _: Exception | None, number: int = number) -> None:
            order.append(number)
            taken = answer.pulled.deliveries
            assert (taken[0].low, taken[-1].to) == [(1, 601), (601, 606), (606, 611)][number]

        core.node.add_work(asked.source, work.whole(), done)
    while core.node.has_turns and len(order) < 3:
        core.node.turn()
    assert order == [0, 1, 2]


def test_a_read_waits_for_what_its_session_asked_for_before() -> None:
    asked = Asked()
    asked.other()
    asked.describe("small")
    asked.until(2)
    assert asked.done == ["other", "small"]


def test_a_peek_over_several_steps_brings_each_message_once() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k", "l"))
    for number in range(60):
        core.change(publish("k" if number % 4 else "l", b"x"))
    queue_id = core.tables.queue_by_name.get(b"q")
    assert queue_id is not None
    with patched({"READ_ROWS_PER_STEP": 7}):
        work, steps = peek(core.state, queue_id, 55, 1 << 20), 0
        while True:
            try:
                next(work)
            except StopIteration as stop:
                found = [(one.key, offset) for one in stop.value for offset in range(one.low, one.to)]
                break
            steps += 1
    assert steps > 4 and len(set(found)) == len(found) == 55
    for key in (b"k", b"l"):
        of_key = [offset for name, offset in found if name == key]
        assert of_key == list(range(1, len(of_key) + 1)), "the first ones, in their order"


@pytest.mark.parametrize("ended", [False, True])
def test_a_walk_goes_on_with_a_binding_only_if_it_is_the_same_one(ended: bool) -> None:
    core = CoreDriver()
    core.change(declare("q", "keeper"), bind("keeper", "k"), bind("q", "k"), publish("k", b"x"))
    if ended:
        core.change(unbind("q", "k"))
    queue_id = core.tables.queue_by_name.get(b"q")
    assert queue_id is not None
    walk = BindingWalk(core.state, queue_id)
    found = walk.next()
    assert found is not None and bool(found.end) is ended
    walk.pause()
    assert walk.again() == found
    walk.pause()
    core.change(unbind("q", "k", discard=True), publish("k", b"x"), bind("q", "k"), publish("k", b"x"))
    if ended:
        core.change(unbind("q", "k"))
    assert walk.again() is None
