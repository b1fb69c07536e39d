"""Walks over queues with many bindings remember what they met: few are under way at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.limits import READ_ROWS_PER_STEP, WALKED_BINDING_BYTES
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.turns import Source, Work
from tests.fuzz.small_limits import patched

from .core_driver import CoreDriver, bind, declare

LARGE, SMALL = 4 * READ_ROWS_PER_STEP, 3


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    with patched({"WALK_BINDINGS_AT_ONCE": SMALL, "WALKS_BYTES_MAX": 5 * LARGE * WALKED_BINDING_BYTES // 2}):
        yield


class Asked:
    """Describes of queues, or peeks, each of a connection of its own."""

    def __init__(self) -> None:
        self.core = CoreDriver()
        self.core.change(declare("large", "small"))
        self.core.change(*(bind("large", f"k{number}") for number in range(LARGE)))
        self.core.change(*(bind("small", f"k{number}") for number in range(SMALL - 1)))
        self.answers: dict[int, wire.Answer] = {}

    def ask(self, number: int, queue: bytes, source: Source | None = None) -> None:
        def done(answer: wire.Answer, error: Exception | None) -> None:
            assert error is None
            self.answers[number] = answer

        if number % 2:
            work = requests.pull(self.core.node, self.core.session(), wire.Pull(queue=queue, peek=True), 0, 1_000)
        else:
            work = requests.describe(self.core.node, wire.Describe(queues=[queue]))
        self.core.node.add_work(source or Source(number, number), work(), done, reads=True)


def test_few_walks_over_many_bindings_are_under_way_at_a_time() -> None:
    """250 describes of 5 bytes took a node of 320 MiB to 2,078."""
    asked = Asked()
    for number in range(20):
        asked.ask(number, b"large")
    room, most = asked.core.node.walk_room, 0
    while asked.core.node.turns:
        asked.core.node.turns.step()
        most = max(most, room.held_bytes)
    assert most == 2 * LARGE * WALKED_BINDING_BYTES and room.held_bytes == 0
    assert sorted(asked.answers) == list(range(20))
    assert {answer.description.queues[0].binding_count for n, answer in asked.answers.items() if n % 2 == 0} == {LARGE}


def test_a_look_at_a_small_queue_does_not_wait() -> None:
    asked = Asked()
    for number in range(20):
        asked.ask(number, b"large")
    for number in range(20, 22):
        asked.ask(number, b"small")
    while asked.core.node.turns and len(asked.answers) < 2:
        asked.core.node.turns.step()
    assert sorted(asked.answers) == [20, 21]


def test_nor_does_anything_of_the_same_session() -> None:
    """Two users of a gateway who asked for a large queue again and again made its other users wait for 0.9 s."""
    asked, session = Asked(), Source("gateway", 1)
    for number in range(4):
        asked.ask(number, b"large", session)
    asked.ask(20, b"small", session)
    assert not asked.core.node.turns.busy(session), "acks and attaches would wait"
    while not asked.answers:
        asked.core.node.turns.step()
    assert sorted(asked.answers) == [20]
    asked.core.node.turns.drop(session)
    assert not asked.core.node.turns and asked.core.node.walk_room.held_bytes == 0


def test_a_read_waits_for_what_its_session_asked_for_before() -> None:
    asked, session = Asked(), Source("gateway", 1)

    def attach() -> Work[None]:
        for _ in range(3):
            yield
        asked.answers[99] = wire.Answer()

    asked.core.node.add_work(session, attach(), lambda *_: None)
    asked.ask(20, b"small", session)
    while asked.core.node.turns:
        asked.core.node.turns.step()
    assert list(asked.answers) == [99, 20]


def test_who_leaves_holds_up_nobody() -> None:
    """Neither one that waits, nor one whose walk is under way."""
    asked = Asked()
    for number in range(8):
        asked.ask(number, b"large")
    for _ in range(16):
        asked.core.node.turns.step()
    assert asked.core.node.walk_room.held_bytes
    for number in range(7):
        asked.core.node.turns.drop(Source(number, number))
    while asked.core.node.turns:
        asked.core.node.turns.step()
    assert list(asked.answers) == [7] and asked.core.node.walk_room.held_bytes == 0


def test_a_walk_that_is_larger_than_all_the_room_begins_alone() -> None:
    asked = Asked()
    with patched({"WALKS_BYTES_MAX": 1}):
        for number in range(4):
            asked.ask(number, b"large")
        while asked.core.node.turns:
            asked.core.node.turns.step()
            assert asked.core.node.walk_room.held_bytes <= LARGE * WALKED_BINDING_BYTES
    assert len(asked.answers) == 4
