"""Who is served next: sources by cost, owners of work in turn, and what is dropped with its owner."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from shoal_contract.errors import Conflict
from shoal_slice_node.core.fair_queue import FairQueue
from shoal_slice_node.core.limits import FAIR_QUANTUM, LONG_WORK_STEPS
from shoal_slice_node.core.turns import Source, Turns, Work

ONE, TWO = Source("one", 1), Source("two", 2)


def test_sources_are_served_by_cost_and_each_in_its_order() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(100):
        queue.put("cheap", number, 1, 10)
        queue.put("dear", number, 1000, 20)
    assert queue.sources == 2 and queue.bytes == 3000 and queue.bytes_of("dear") == 2000
    taken = [queue.take() for _ in range(200)]
    for source in ("cheap", "dear"):
        assert [item for one, item in taken if one == source] == list(range(100))
    assert Counter(source for source, _ in taken[:100])["cheap"] >= 95, "while a dear one saves up, others go on"
    assert not queue and queue.bytes == 0


def test_what_waits_is_shared_evenly_whatever_the_sources_ask_for() -> None:
    random = Random(1)
    queue: FairQueue[int] = FairQueue()
    for source in range(4):
        for _ in range(500):
            queue.put(source, cost := random.choice((1, 10, 100, 700)), cost, 1)
    served: Counter[object] = Counter()
    while queue.sources == 4:
        one, taken = queue.take()
        served[one] += taken
    assert max(served.values()) - min(served.values()) <= 2 * FAIR_QUANTUM + 2 * 700


def test_everything_is_taken_out_at_once() -> None:
    queue: FairQueue[str] = FairQueue()
    for source in "abc":
        queue.put(source, source * 2, 1, 1)
    assert sorted(queue.clear()) == ["aa", "bb", "cc"]
    assert not queue and queue.bytes == 0 and queue.bytes_of("a") == 0


def counting(told: list[str], name: str, steps: int) -> Work[str]:
    for step in range(steps):
        told.append(f"{name}{step}")
        yield
    return name


def test_owners_take_turns_and_one_does_its_pieces_in_order() -> None:
    told: list[str] = []
    done: list[object] = []
    turns = Turns()
    for name, steps in (("a", 2), ("b", 1)):
        turns.add(ONE, counting(told, name, steps), lambda result, _: done.append(result))
    turns.add(TWO, counting(told, "c", 3), lambda result, _: done.append(result))
    while turns:
        turns.step()
    assert told == ["a0", "c0", "a1", "c1", "c2", "b0"]
    assert done == ["a", "c", "b"] and not turns.busy(ONE)


def test_short_work_does_not_wait_for_the_long_work_of_many_connections() -> None:
    """Six hundred connections have long work: a short piece is done within a few steps for each of its own."""
    told: list[str] = []
    turns = Turns()
    for number in range(600):
        turns.add(Source(number, 1), counting([], "long", 1000), lambda *_: None)
    for _ in range(600 * 100):
        turns.step()
    turns.add(ONE, counting(told, "short", 10), lambda *_: told.append("done"))
    steps = 0
    while "done" not in told:
        turns.step()
        steps += 1
    assert steps <= 100


def test_long_work_goes_on_while_short_work_comes_all_the_time() -> None:
    done: list[str] = []
    turns = Turns()
    steps = 4 * LONG_WORK_STEPS[-1]
    turns.add(ONE, counting([], "long", steps), lambda *_: done.append("long"))
    for number in range(8 * steps):
        turns.add(Source("short", number), counting([], "s", 1), lambda *_: None)
        turns.step()
    assert done == ["long"]


def test_work_that_is_dropped_leaves_every_line() -> None:
    turns = Turns()
    for source in (ONE, Source("one", 2)):
        turns.add(source, counting([], "long", 1000), lambda *_: None)
    for _ in range(10 * LONG_WORK_STEPS[0]):
        turns.step()
    turns.drop(ONE)
    turns.step()
    turns.drop(Source("one", 2))
    assert not turns and not turns.busy(ONE)


class Leaving:
    """Adds work of its owner as it ends, as where it gives room back that other work of its owner waits for."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.told: list[object] = []

    def done(self, result: object, error: Exception | None) -> None:
        self.told.append(error)

    def work(self) -> Work[None]:
        try:
            yield
            yield
        finally:
            self.turns.add(ONE, counting([], "late", 3), self.done)


@pytest.mark.parametrize("beside", [False, True])
def test_what_work_adds_as_it_is_dropped_is_dropped_too(beside: bool) -> None:
    """It was left without a place in a line, and the next step found nothing: the node ended."""
    turns = Turns()
    leaving = Leaving(turns)
    (turns.add_beside if beside else turns.add)(ONE, leaving.work(), leaving.done)
    turns.step()
    turns.drop(ONE)
    assert not turns and not turns.busy(ONE)
    turns.add(Source("other", 1), counting([], "after", 1), leaving.done)
    while turns:
        turns.step()
    assert leaving.told == [None]


def test_what_work_adds_as_all_ends_is_told_too() -> None:
    turns = Turns()
    leaving = Leaving(turns)
    turns.add(ONE, leaving.work(), leaving.done)
    turns.step()
    error = Conflict("over")
    turns.end(error)
    assert not turns
    assert leaving.told == [error, error]


def test_connections_take_turns_however_many_sessions_they_have() -> None:
    told: list[str] = []
    turns = Turns()
    for number in range(10):
        turns.add(Source("many", number), counting(told, "m", 5), lambda *_: None)
    turns.add(Source("one", "session"), counting(told, "o", 5), lambda *_: None)
    while turns:
        turns.step()
    assert [step for step in told[:10] if step.startswith("o")] == ["o0", "o1", "o2", "o3", "o4"]
    assert told[:10:2] == ["m0"] * 5, "its sessions take turns in their connection's"


def test_what_fails_is_told_and_the_rest_goes_on() -> None:
    def failing() -> Work[None]:
        yield
        raise Conflict("no")

    told: list[object] = []
    turns = Turns()
    turns.add(ONE, failing(), lambda result, error: told.append((result, type(error))))
    turns.add(ONE, counting([], "after", 1), lambda result, error: told.append((result, error)))
    while turns:
        turns.step()
    assert told == [(None, Conflict), ("after", None)]


def test_the_work_of_an_owner_that_is_gone_ends_and_nothing_is_told() -> None:
    ended: list[str] = []

    def work() -> Work[None]:
        try:
            while True:
                yield
        finally:
            ended.append("closed")

    turns = Turns()
    turns.add(ONE, work(), lambda *_: ended.append("told"))
    turns.add(ONE, work(), lambda *_: ended.append("told"))
    turns.step()
    turns.drop(ONE)
    assert ended == ["closed"] and not turns and not turns.busy(ONE)


def test_who_comes_new_does_not_wait_for_a_round_in_vain() -> None:
    queue: FairQueue[str] = FairQueue()
    for source in "abc":
        for _ in range(50):
            queue.put(source, source, FAIR_QUANTUM, 1)
    for _ in range(6):
        queue.take()
    queue.put("new", "new", 1, 1)
    assert "new" in [queue.take()[0] for _ in range(4)]


def test_who_works_for_all_gets_up_to_half() -> None:
    """Acks of everybody waited for a round of all connections for each of their records."""
    queue: FairQueue[str] = FairQueue("node")
    for source in ["node", *map(str, range(20))]:
        for _ in range(100):
            queue.put(source, source, FAIR_QUANTUM, 1)
    taken = Counter(queue.take()[0] for _ in range(300))
    assert 80 <= taken["node"] <= 110


def test_a_look_begins_after_what_its_owner_had_then_whatever_comes_later() -> None:
    """Three workers that pulled in loops kept every describe and peek of their connection from beginning."""
    turns, source, done = Turns(), Source("c", "o"), list[str]()

    def work(steps: int) -> Work[None]:
        for _ in range(steps):
            yield

    def pulled(_: object = None, __: object = None) -> None:
        done.append("pull")
        pull()

    def pull() -> None:
        turns.add(source, work(2), pulled)

    pull()
    turns.add_beside(source, work(1), lambda *_: done.append("look"))
    pull()
    while "look" not in done:
        turns.step()
        assert len(done) < 4
