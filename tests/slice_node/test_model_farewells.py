"""Farewells side by side with a model in plain dicts, driven by hypothesis: sessions, time, restarts, drops, expiries.

Time goes on in ticks, and the model hears of each. So it knows when the node could see first that a queue was left, and
says exactly at which tick each farewell comes.
"""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal_contract.chunk import parse_chunk
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import Kind, encode_ownership
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.rows.log_row import chunk_of
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs.engine import Engine

from .core_driver import PARTITIONS, CoreDriver, configure, declare, drop, farewell
from .memory_base import MemoryBase
from .slice_machine import RUNS

QUEUES = ("p", "q", "t")
EXPIRES_S = 4
ROOM, AWAY = "room", "away"
"""A key that is kept whole, and one that another slice owns."""
TICK_MS = 500

queues = st.sampled_from(QUEUES)


@dataclass
class Timer:
    """Runs while nothing consumes a queue. `end_ms` None: it begins with the next tick."""

    seconds: int
    end_ms: int | None = None

    def over(self, now_ms: int) -> bool:
        if self.end_ms is None:
            self.end_ms = now_ms + self.seconds * 1000
        return self.end_ms <= now_ms


@dataclass
class Kept:
    """A queue. `farewell`: body, key, seconds."""

    farewell: tuple[bytes, str, int] | None = None
    said: Timer | None = None
    expires: Timer | None = None


class FarewellMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Kept] = {}
        self.sessions: list[tuple[Session, set[str]]] = []
        """Each with the queues that it has attached, or waits for."""
        self.expected: dict[str, list[bytes]] = {ROOM: [], AWAY: []}
        self.bodies = 0
        self.frozen = False

    @initialize()
    def open(self) -> None:
        self.base = MemoryBase()
        self.delta = Delta(self.base)
        self.core = CoreDriver(self.delta)
        self.core.change(configure(ROOM, KeyOptions(1_000_000)))
        away = self.core.state.full_name(AWAY.encode())[:2]
        owned = bytes(number != int.from_bytes(away, "big") for number in range(PARTITIONS))
        assert all(self.core.state.full_name(f"@{queue}".encode())[:2] != away for queue in QUEUES)
        self.core.record(Kind.OWNERSHIP, encode_ownership(2, owned))
        for queue in QUEUES:
            self.declares(queue)

    def consumed(self, queue: str) -> bool:
        return any(queue in names for _, names in self.sessions)

    def left(self, queue: str) -> None:
        """Its times begin, unless it is consumed."""
        kept = self.kept.get(queue)
        if kept is None or self.consumed(queue):
            return
        kept.said = None if kept.farewell is None else Timer(kept.farewell[2])
        kept.expires = Timer(EXPIRES_S) if queue == "t" else None

    @rule(queue=queues)
    def declares(self, queue: str) -> None:
        self.core.change(declare(queue, expires_after_s=EXPIRES_S if queue == "t" else 0))
        kept = self.kept.setdefault(queue, Kept())
        if queue == "t" and not self.consumed(queue):
            kept.expires = Timer(EXPIRES_S)

    @rule(queue=queues, key=st.sampled_from([ROOM, ROOM, AWAY]), after_s=st.integers(0, 8))
    def sets(self, queue: str, key: str, after_s: int) -> None:
        self.bodies += 1
        body = b"%d" % self.bodies
        outcome = self.core.change(farewell(queue, key=key, body=body, after_s=after_s)).steps[0]
        assert bool(outcome.refusals) == (queue not in self.kept)
        if queue in self.kept:
            kept = self.kept[queue]
            kept.farewell = body, key, after_s
            kept.said = None if self.consumed(queue) else Timer(after_s)

    @rule(queue=queues)
    def takes_back(self, queue: str) -> None:
        outcome = self.core.change(farewell(queue)).steps[0]
        assert bool(outcome.refusals) == (queue not in self.kept)
        if queue in self.kept:
            self.kept[queue].farewell = self.kept[queue].said = None

    @rule(queue=queues)
    def drops(self, queue: str) -> None:
        if queue in self.kept:
            self.core.change(drop(queue))
            del self.kept[queue]

    @precondition(lambda self: len(self.sessions) < 3)
    @rule()
    def opens_a_session(self) -> None:
        self.sessions.append((self.core.session(), set()))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), queue=queues)
    def attaches(self, data: st.DataObject, queue: str) -> None:
        session, names = data.draw(st.sampled_from(self.sessions))
        if queue in names:  # A handle that is attached again: the last session leaves, and comes.
            names.discard(queue)
            self.left(queue)
        assert self.core.attach(session, queue, QUEUES.index(queue)) == (queue in self.kept)
        names.add(queue)
        if queue in self.kept:
            self.kept[queue].said = self.kept[queue].expires = None

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), queue=queues)
    def detaches(self, data: st.DataObject, queue: str) -> None:
        session, names = data.draw(st.sampled_from(self.sessions))
        self.core.dispatcher.detach(session, QUEUES.index(queue))
        if queue in names:
            names.discard(queue)
            self.left(queue)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def closes(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.sessions))
        self.sessions.remove(entry)
        self.core.dispatcher.close(entry[0])
        self.core.pump()
        for queue in entry[1]:
            self.left(queue)

    @rule(ticks=st.integers(1, 9))
    def time_goes_on(self, ticks: int) -> None:
        for _ in range(ticks):
            self.core.now_ms += TICK_MS
            self.core.maintain()
            self.model_ticks()
            self.check_said()

    def model_ticks(self) -> None:
        for queue, kept in list(self.kept.items()):
            if kept.said is not None and kept.said.over(self.core.now_ms):
                self.says(kept)
            if kept.expires is not None and kept.expires.over(self.core.now_ms):
                self.says(kept)
                del self.kept[queue]

    def says(self, kept: Kept) -> None:
        if kept.farewell is not None:
            body, key, _ = kept.farewell
            self.expected[key].append(body)
            kept.farewell = kept.said = None

    @rule()
    def restarts(self) -> None:
        """All sessions are gone, and all times begin anew: now, whatever the next tick shows."""
        self.core.restart()
        self.sessions.clear()
        for queue, kept in self.kept.items():
            self.left(queue)
            for timer in (kept.said, kept.expires):
                if timer is not None:
                    timer.over(self.core.now_ms)

    @rule(count=st.integers(1, 3))
    def letters_arrive(self, count: int) -> None:
        box = self.core.dispatcher.farewells.letters
        for _ in range(count):
            letter = box.take(self.core.now_ms)
            if letter is not None:
                (body,) = parse_chunk(letter.chunk).bodies
                assert body in self.expected[AWAY], "it was not said, or has arrived already"
                self.expected[AWAY].remove(body)
                box.sent(letter)
                self.core.maintain()
                self.model_ticks()

    @rule()
    def freezes(self) -> None:
        if self.frozen:
            self.base.checkpoint(self.delta)
        else:
            self.delta.freeze()
        self.frozen = not self.frozen

    def check_said(self) -> None:
        """The room has what was said, each once, and nothing else."""
        found = [body for *_, row in self.delta.log.scan() for body in parse_chunk(chunk_of(row)).bodies]
        assert sorted(found) == sorted(self.expected[ROOM])

    @invariant()
    @precondition(lambda self: hasattr(self, "core"))
    def tables_are_sound(self) -> None:
        problems = list(check_tables(self.delta, local_known=False))
        assert not problems, "\n".join(map(str, problems))

    @invariant()
    @precondition(lambda self: hasattr(self, "core"))
    def describe_says_what_is_kept_and_when_it_is_due(self) -> None:
        node = self.core.node
        answer = finish(requests.describe(node, wire.Describe(queues=[queue.encode() for queue in QUEUES])).whole())
        for found in answer.description.queues:
            kept = self.kept.get(found.queue.decode())
            assert found.exists == (kept is not None)
            assert found.HasField("farewell") == (kept is not None and kept.farewell is not None)
            if kept is not None and kept.farewell is not None:
                _, key, after_s = kept.farewell
                shown = found.farewell
                assert (shown.key.decode(), shown.after_s) == (key, after_s)
                if kept.said is None or not node.wall_ms:
                    assert shown.due_ms == 0
                else:
                    end_ms = node.now_ms + after_s * 1000 if kept.said.end_ms is None else kept.said.end_ms
                    assert shown.due_ms == node.wall_ms + end_ms - node.now_ms

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        for session, _ in self.sessions:
            self.core.dispatcher.close(session)
        names = {queue for _, attached in self.sessions for queue in attached}
        self.sessions.clear()
        self.core.pump()
        for queue in names:
            self.left(queue)
        self.time_goes_on(40)
        while self.expected[AWAY]:
            self.letters_arrive(1)
        assert not list(self.delta.farewell.scan()), "all was said"
        again = Engine(MemoryTables())
        for record in self.core.records:
            again.apply(record)
        assert finish(checksums(again.state.tables)) == finish(checksums(self.delta)), "replay gives other tables"


TestFarewells = pytest.mark.timeout(600)(FarewellMachine.TestCase)
TestFarewells.settings = settings(RUNS, max_examples=150)
