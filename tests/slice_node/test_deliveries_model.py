"""A queue with a bound for deliveries against a model: random consumers, full disks, restarts and binds.

Each message is acked, or copied to the dead-letter key, once, after exactly as many counted deliveries as are allowed;
`redelivered` is what the model counts. Changes come between what is decided and what its record does. In some runs
another slice owns the dead-letter key, and copies are letters. Each seed is a test of its own, and gives the same steps
again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import ResourceExhausted
from shoal_contract.options import QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.dispatch import deciding
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs.engine import Engine

from .core_driver import acks, bind, declare, publish, raises, unbind
from .dead_letters_driver import DeadLettersDriver, declare_with, foreign

MOST = 3
TIMEOUT_MS = 4_000


@dataclass
class Message:
    """`counted`: how often it came back in a record that is applied. `out`: the session that has it."""

    counted: int = 0
    out: int = 0
    done: bool = False


@dataclass
class Run:
    random: Random
    core: DeadLettersDriver = field(default_factory=DeadLettersDriver)
    messages: dict[int, Message] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    elsewhere: bool = False
    """Another slice owns the dead-letter key."""

    def begin(self) -> None:
        options = QueueOptions(ack_timeout_ms=TIMEOUT_MS, max_deliveries=MOST, dead_letter=b"dead")
        self.core.change(declare_with("q", options), declare("graveyard"))
        self.core.change(bind("q", "k"), bind("graveyard", "dead"))
        self.elsewhere = self.random.random() < 0.4
        if self.elsewhere:
            foreign(self.core)

    def step(self) -> None:
        steps = [self.publishes] * 3 + [self.takes] * 4 + [self.acks] * 2 + [self.nacks] * 4 + [self.waits] * 3
        rare = [self.opens, self.closes, self.refuses, self.restarts, self.binds_again]
        self.random.choice([*steps, *rare, self.acks_beside_a_record, self.acks_beside_a_record])()

    def publishes(self) -> None:
        bodies = [b"x"] * self.random.choice((1, 1, 3))
        first = self.core.change(publish("k", *bodies)).steps[0].offsets[0]
        self.messages |= {first + number: Message() for number in range(len(bodies))}

    def opens(self) -> None:
        if len(self.sessions) < 3:
            session = self.core.session()
            assert self.core.attach(session, "q", messages=self.random.choice((1, 3, 100)))
            self.sessions.append(session)

    def takes(self) -> None:
        for session in self.sessions:
            for one in self.core.deliveries(session):
                for offset in range(one.low, one.to):
                    message = self.messages[offset]
                    assert not message.done and not message.out and one.redelivered == message.counted < MOST
                    message.out = session.number

    def _held(self) -> tuple[Session, list[int]] | None:
        self.takes()  # A range may name what was given and not read.
        held = [(s, [o for o, m in self.messages.items() if m.out == s.number]) for s in self.sessions]
        return self.random.choice([one for one in held if one[1]] or [None])

    def acks(self) -> None:
        found = self._held()
        if found is not None:
            session, offsets = found
            some = offsets if self.random.random() < 0.3 else [self.random.choice(offsets)]
            self.core.ack(session, "k", min(some), max(some) + 1)
            for offset in offsets:
                if min(some) <= offset <= max(some):
                    self.messages[offset] = Message(done=True)
            self.core.flush()

    def nacks(self) -> None:
        found = self._held()
        if found is not None:
            session, offsets = found
            low = self.random.choice(offsets)
            to = self.random.choice((low + 1, low + 1, low + 4))
            self.core.nack(session, low, to, self.random.choice((0, 0, 50, 3000)))
            self._came_back([o for o in offsets if low <= o < to])
            self._records()
            self._collect()

    def _came_back(self, offsets: list[int]) -> None:
        """Each counts once its record is applied."""
        for offset in offsets:
            message = self.messages[offset]
            message.counted, message.out = message.counted + 1, 0
            if message.counted >= MOST:
                message.done = True
                self.dead.append(offset)

    def waits(self) -> None:
        """So long that acks in time are over, or not nearly so long."""
        if self.random.random() < 0.3:
            self.takes()  # What was given counts, whether it was read or not.
            self.core.wait(TIMEOUT_MS + 100)  # Their time begins with the next tick.
            self._came_back([offset for offset, message in self.messages.items() if message.out])
            self._records()
        else:
            self.core.now_ms += 1  # Too short for any timeout.
            self._records()
        self._collect()

    def closes(self) -> None:
        if self.sessions:
            self.takes()
            session = self.sessions.pop(self.random.randrange(len(self.sessions)))
            self.core.dispatcher.close(session)
            self.core.pump()
            self._came_back([o for o, message in self.messages.items() if message.out == session.number])
            self._records()
            self._collect()

    def refuses(self) -> None:
        """The disk is full for a while: what came back is decided again."""
        found = self._held()
        if found is not None:
            session, offsets = found
            self.core.nack(session, offsets[0], offsets[0] + 1)
            for _ in range(2):
                self.core.node.tick(self.core.now_ms, self.core.wall_ms)
                self.core.node.commit.gather(self.core.wall_ms)
                self.core.node.commit.refused(ResourceExhausted("the disk is full", subject="disk"))
            self._came_back([offsets[0]])
            self._records()
            self._collect()

    def acks_beside_a_record(self) -> None:
        """A change acks one of some messages that came back; it is applied after the record of their counts was
        gathered, and before that record."""
        found = self._held()
        if found is None:
            return
        session, offsets = found
        offsets = sorted(offsets)
        low = max(offsets, key=lambda offset: self.messages[offset].counted)
        some = [offset for offset in offsets if low <= offset < low + 4]
        acked = self.random.choice(some)
        self.core.nack(session, some[0], some[-1] + 1, self.random.choice((0, 3000)))
        data = wire.Change(steps=[acks(("q", "k", acked, acked + 1))]).SerializeToString()
        head = ChangeHead(NO_PRODUCER, 0, 0)
        commit = self.core.node.commit
        commit.submit(Item(Kind.CHANGE, encode_change(head, data), lambda _: None, raises))
        self.core.now_ms += 1
        self.core.node.tick(self.core.now_ms, self.core.wall_ms)
        gathered = commit.gather(self.core.wall_ms).entries
        self.core.records += [record for _, record in gathered if record is not None]
        commit.written()
        while commit.to_apply:
            commit.step()
        self.messages[acked] = Message(done=True)
        self._came_back([offset for offset in some if offset != acked])
        self._records()
        self._collect()

    def restarts(self) -> None:
        """What was out is given again, and not counted."""
        self.core.restart()
        self.sessions.clear()
        for message in self.messages.values():
            message.out = 0

    def binds_again(self) -> None:
        """Away and back: what is owed stays owed, with its counts."""
        self.core.change(unbind("q", "k"))
        self.core.change(bind("q", "k"))

    def _records(self) -> None:
        """All that came back is decided, however little a record takes."""
        while self.core.maintain():
            pass

    def _collect(self) -> None:
        """The copies that there are now are those that the model expects: each once."""
        found = self._letters() if self.elsewhere else self._copies()
        assert sorted(found) == sorted(self.dead), f"copies of {found}, expected {self.dead}"
        self.dead.clear()

    def _letters(self) -> list[int]:
        """The slice that owns the key takes each letter at once."""
        letters = self.core.dispatcher.registry.returns.letters
        found = []
        while (letter := letters.take(self.core.now_ms)) is not None:
            (headers,) = parse_chunk(letter.chunk).headers
            assert headers.fields["shoal-deliveries"] == b"%d" % MOST
            found.append(int(headers.fields["shoal-offset"]))
            letters.sent(letter)
        self._records()
        assert not letters.unsent
        return found

    def _copies(self) -> list[int]:
        queue_id = self.core.tables.queue_by_name.get(b"graveyard")
        session = self.core.session()
        assert queue_id is not None and self.core.attach(session, "graveyard", 9)
        found = []
        for one in self.core.deliveries(session):
            fields = [headers.fields for headers in parse_chunk(one.chunk).headers]
            assert all(each["shoal-deliveries"] == b"%d" % MOST for each in fields)
            found += [int(each["shoal-offset"]) for each in fields]
            self.core.ack(session, "dead", one.low, one.to, 9)
        self.core.flush()
        self.core.dispatcher.close(session)
        return found

    def end(self) -> None:
        """All that is left comes and is acked; then nothing is kept."""
        for _ in range(100):
            if all(message.done for message in self.messages.values()):
                break
            self.opens()
            self.takes()
            for session in self.sessions:
                for offset, message in self.messages.items():
                    if message.out == session.number:
                        self.core.ack(session, "k", offset, offset + 1)
                        self.messages[offset] = Message(done=True)
            self.core.flush()
            self.core.wait(500)
        assert all(message.done for message in self.messages.values()), "not all of it came"
        for session in self.sessions:
            self.core.dispatcher.close(session)
        self.core.settle()
        assert not self.core.dispatcher.feeds and not list(self.core.tables.detail.scan())
        assert not list(self.core.tables.log.scan())
        self.core.check()
        other = Engine(MemoryTables())
        for record in self.core.records:
            other.apply(record)
        assert finish(checksums(other.state.tables)) == finish(checksums(self.core.tables))


@pytest.mark.parametrize("first", range(0, 60, 5))
def test_each_message_is_acked_or_copied_once(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 5):
        random = Random(seed)
        monkeypatch.setattr(deciding, "DEAD_PER_RECORD_MAX", random.choice((1, 50)))
        monkeypatch.setattr(deciding, "RETRIES_PER_RECORD_MAX", random.choice((1, 200)))
        run = Run(random)
        run.begin()
        for _ in range(60):
            run.step()
            run.core.check()
            run.core.check_served()
        run.end()
