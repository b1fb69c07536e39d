"""What waits for RETRY records: its order within a binding, the turns of bindings, and the order of dead letters."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from shoal_slice_node.core.apply.records import Reason
from shoal_slice_node.core.dispatch import deciding
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Resting, Returned
from shoal_slice_node.core.dispatch.undecided import Undecided, Waiting
from shoal_slice_node.core.limits import RESTING_BYTES

from .core_driver import bind, declare, publish
from .dead_letters_driver import DeadLettersDriver

BODIES = [b"%d" % number for number in range(8)]


@pytest.fixture
def streams() -> list[Stream]:
    """Two bindings of each of two queues."""
    core = DeadLettersDriver()
    core.change(declare("a", "b"), bind("a", "k", "l"), bind("b", "k", "l"))
    session = core.session()
    for handle, queue in enumerate("ab"):
        core.attach(session, queue, handle)
    core.pump()
    found = [stream for feed in core.dispatcher.feeds.values() for stream in feed.streams.values()]
    assert len(found) == 4
    return found


def resting(number: int, session: int = 1) -> Resting:
    return Resting(Returned(number, number + 1, 1), Reason.NACK, 0, session)


@pytest.mark.parametrize("queues", [1, 400])
def test_a_stretch_of_a_binding_of_its_own_takes_no_more_than_what_is_charged(queues: int) -> None:
    """Each had a deque, and each queue an ordered dict: 800 and 1,200 bytes, where 300 are charged for all of it."""
    core = DeadLettersDriver()
    names = [f"q{number}" for number in range(queues)]
    keys = [f"k{number}" for number in range(400 // queues)]
    core.declare(names)
    core.change_all(bind(name, *keys) for name in names)
    session = core.session()
    for handle, name in enumerate(names):
        core.attach(session, name, handle)
    core.pump()
    streams = [stream for feed in core.dispatcher.feeds.values() for stream in feed.streams.values()]
    undecided, waiting = Undecided(), [resting(number) for number in range(len(streams))]
    assert len(streams) == 400
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for stream, one in zip(streams, waiting, strict=True):
            undecided.add(stream, one)
        taken_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken_bytes < len(streams) * RESTING_BYTES, taken_bytes // len(streams)
    found = [undecided.take() for _ in streams]
    assert [list(one.stretches) for one in found] == [[one] for one in waiting] and not undecided


def numbers(waiting: Waiting) -> list[int]:
    return [one.first for one in waiting.stretches]


@pytest.mark.parametrize("seed", range(10))
def test_what_waits_keeps_its_order_within_its_binding(streams: list[Stream], seed: int) -> None:
    random = Random(seed)
    undecided = Undecided()
    expected = {(session, stream): list[int]() for session in (1, 2) for stream in streams}
    for number in range(0, 1000, 2):
        session, stream, kind = random.choice((1, 2)), random.choice(streams), random.random()
        if kind < 0.3:
            undecided.add(stream, resting(number, session))
            expected[session, stream].append(number)
        elif kind < 0.5:
            undecided.add_first(stream, resting(number, session))
            expected[session, stream].insert(0, number)
        elif undecided:
            taken = undecided.take()
            line = expected[taken.session, taken.stream]
            assert numbers(taken) == line
            for _ in range(random.randint(0, len(line))):
                taken.stretches.popleft()
                del line[0]
            if random.random() < 0.5:  # More comes back before the rest is put back.
                undecided.add(taken.stream, resting(number, taken.session))
                line.append(number)
            undecided.put_back(taken, first=random.random() < 0.5)
        assert bool(undecided) == any(expected.values())
    while undecided:
        taken = undecided.take()
        assert numbers(taken) == expected.pop((taken.session, taken.stream))
    assert not any(expected.values())


def test_what_is_put_back_is_next_or_waits_behind_the_others(streams: list[Stream]) -> None:
    undecided = Undecided()
    for number in range(40):
        undecided.add(streams[number % 4], resting(number, 1 + number // 4 % 2))
    one = undecided.take()
    undecided.put_back(one, first=True)
    for _ in range(2):
        seen = []
        for _ in range(8):
            taken = undecided.take()
            seen.append((taken.session, taken.stream))
            undecided.put_back(taken, first=False)
        assert seen[0] == (one.session, one.stream)
        assert len(set(seen)) == 8, "each binding of each session has one turn"
        assert [session for session, _ in seen] == [1, 2] * 4, "sessions have turns"
        queues = [stream.feed.queue_id for session, stream in seen if session == 1]
        assert queues[0] == queues[2] != queues[1] == queues[3], "queues have turns within a session's"


def test_dead_letters_of_a_key_come_in_the_order_in_which_their_messages_came_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deciding, "DEAD_PER_RECORD_MAX", 2)
    monkeypatch.setattr(deciding, "DEAD_PER_TURN", 1)
    core = DeadLettersDriver()
    core.bounded("q", 1)
    core.change(declare("graveyard"), bind("q", "k"), bind("graveyard", "dead"))
    session = core.session()
    core.attach(session, "q")
    for body in BODIES:
        core.change(publish("k", body))
    core.take(session)
    order = [3, 0, 1, 6, 7, 2, 5, 4]
    for number in order:
        core.nack(session, number + 1, number + 2)
    while core.maintain():
        pass
    assert [body for body, _ in core.copies()] == [BODIES[number] for number in order]
