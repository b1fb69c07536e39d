"""Acks of unary calls, which name messages and not what was given them: what they cost, and whom they reach."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from shoal_contract.errors import InvalidName, ShoalError, TooLarge
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.acks_in_flight import AcksInFlight
from shoal_slice_node.core.limits import (
    ACK_BYTES_PER_FRAME_MAX,
    ACKED_CONSUMERS_PER_FRAME_MAX,
    ACKED_PER_STEP,
    DONE_RANGES_PER_COST,
)
from shoal_slice_node.core.node.settling import take_acks
from shoal_slice_node.core.turns import Source

from .core_driver import CoreDriver, bind, declare, publish

CONSUMERS = 1_200


class Acking:
    """Acks as a unary call brings them, and the looks of each step."""

    def __init__(self, core: CoreDriver) -> None:
        self._core = core
        self._turns = core.node.turns
        self.looks: list[int] = []
        self.answered: list[ShoalError | None] = []

    def ack(self, *acks: wire.Ack) -> None:
        acked = AcksInFlight.ack

        def counted(*arguments: object) -> int:
            self.looks[-1] += 1
            return acked(*arguments)  # type: ignore[arg-type]

        with patch.object(AcksInFlight, "ack", counted):
            self.looks.append(0)
            source = Source("connection", "unary")
            session = self._core.session()
            take_acks(self._core.node, source, session, list(acks), self.answered.append, everyone=True)
            while self._turns:
                self.looks.append(0)
                self._turns.step()


def consumed_by_many() -> CoreDriver:
    """A queue whose consumers have a message each."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    for _ in range(CONSUMERS):
        core.attach(core.session(), "q", messages=1)
    core.change_all(publish("k", b"a") for _ in range(CONSUMERS))
    core.pump()
    return core


def left(core: CoreDriver) -> int:
    """Messages that the queue's consumers have out."""
    core.flush()
    queue = core.state.load_queue(b"q")
    assert queue is not None
    [stream] = core.dispatcher.feeds[queue.id].streams.values()
    return stream.out_messages


def test_an_ack_of_one_queue_with_many_consumers_is_done_in_steps() -> None:
    core = consumed_by_many()
    acking = Acking(core)
    acking.ack(wire.Ack(key=b"k", low=1, to=CONSUMERS + 1, queues=[b"q"]))
    assert acking.answered == [None] and left(core) == 0
    assert sum(acking.looks) == CONSUMERS and max(acking.looks) <= ACKED_PER_STEP


def test_only_those_that_have_the_messages_are_looked_at() -> None:
    core = consumed_by_many()
    acking = Acking(core)
    acking.ack(wire.Ack(key=b"k", low=10, to=20, queues=[b"q"]), wire.Ack(key=b"k", low=15, to=30, queues=[b"q"]))
    assert acking.answered == [None] and left(core) == CONSUMERS - 20
    assert sum(acking.looks) == 20


def test_a_queue_named_thousands_of_times_costs_its_consumers_once() -> None:
    """10,000 consumers and one ack that named their queue 12,000 times were 120 million looks."""
    core = consumed_by_many()
    acking = Acking(core)
    acking.ack(wire.Ack(key=b"k", low=1, to=CONSUMERS + 1, queues=[b"q"] * ACKED_CONSUMERS_PER_FRAME_MAX))
    assert acking.answered == [None] and left(core) == 0
    assert sum(acking.looks) == CONSUMERS
    cost = CONSUMERS * (1 + CONSUMERS // DONE_RANGES_PER_COST) + ACKED_CONSUMERS_PER_FRAME_MAX
    assert len(acking.looks) <= 2 + cost // ACKED_PER_STEP


def test_names_are_looked_at_in_steps_and_what_is_wrong_acks_nothing() -> None:
    """Frames of 12,000 names took 70 ms, much of it in one step."""
    core = consumed_by_many()
    acking = Acking(core)
    good = wire.Ack(key=b"k", low=1, to=CONSUMERS + 1, queues=[b"q"])
    names = wire.Ack(key=b"k", low=1, to=2, queues=[b"absent-%d" % number for number in range(3 * ACKED_PER_STEP)])
    acking.ack(good, names, wire.Ack(key=b"k", low=1, to=2, queues=[b""]))
    assert isinstance(acking.answered[0], InvalidName) and left(core) == CONSUMERS and len(acking.looks) >= 3
    acking.ack(good, wire.Ack(key=b"", to=1))
    assert isinstance(acking.answered[1], InvalidName) and left(core) == CONSUMERS


def test_bytes_of_acks_are_bounded() -> None:
    acking = Acking(CoreDriver())
    name = b"n" * 250
    with pytest.raises(TooLarge, match="bytes of the acks of a frame"):
        acking.ack(wire.Ack(key=b"k", to=1, queues=[name] * (1 + ACK_BYTES_PER_FRAME_MAX // 250)))
