"""Queues with options side by side with the reference model, among all the other steps of slice_machine.

Each example draws the options of its three queues: how they expire, ack timeout, bound for deliveries, dead-letter key
(none, one here, one of another slice), exclusive. Besides: live publishes, a key at its capacity, drops and purges of
many, acks in a change, restarts, and hours that pass. Long because a state machine is one class.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import Conflict, NoSuchQueue, ResourceExhausted, from_wire
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_slice_node.core.apply.log_rows import LogRows
from shoal_slice_node.core.apply.records import ChangeHead
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.rows.key_row import ID, KeyRow, decode_key
from shoal_slice_node.core.tables.delta import Delta

from .core_driver import WALL_AHEAD_MS, CoreDriver, acks, bodies_of, configure, drop_if, publish, purge
from .memory_base import MemoryBase
from .options_model import Id, OptionsModel
from .slice_machine import (
    DELAY_MS,
    KEYS,
    LEASED,
    MANY,
    PRODUCER,
    QUEUES,
    DeltaMachine,
    bodies,
    keys,
    queues,
    small,
)

PARTITIONS = 64
DEAD, FULL = "dlq", "full"
"""The dead-letter key of this slice; a key with room for a few messages."""
CAPACITY = 6
HOUR_MS = 3_600_000
_USED = {partition_of(name.encode(), PARTITIONS) for name in (*KEYS, *MANY, *("@" + queue for queue in QUEUES))}
FAR = next(
    name
    for name in (f"far{number}" for number in range(1000))
    if partition_of(name.encode(), PARTITIONS)
    not in _USED | {partition_of(other.encode(), PARTITIONS) for other in (DEAD, FULL)}
)
OWNED = bytes(partition != partition_of(FAR.encode(), PARTITIONS) for partition in range(PARTITIONS))
OWNERS = [b"client-%09d" % number for number in range(3)]


@st.composite
def some_options(draw: st.DrawFn) -> QueueOptions:
    most = draw(st.sampled_from([0, 1, 2, 2, 3]))
    return QueueOptions(
        expires_after_s=draw(st.sampled_from([0, HOUR_MS // 1000])),
        ack_timeout_ms=draw(st.sampled_from([0, HOUR_MS])),
        max_deliveries=most,
        dead_letter=draw(st.sampled_from([DEAD, FAR, FAR, ""])) if most else "",
        exclusive=draw(st.sampled_from(["none", "newest", "oldest"])),
    )


class OptionsMachine(DeltaMachine):
    """`elsewhere`: what the other slice has, by its producer. `lives`: each live body, with its key, and the queues
    that may still get it."""

    model: OptionsModel
    configured = (*KEYS, DEAD, FULL)

    @initialize(options=st.tuples(some_options(), some_options(), some_options()))
    def open(self, options: tuple[QueueOptions, QueueOptions, QueueOptions]) -> None:
        self.options = dict(zip(QUEUES, options, strict=True))
        self.base = MemoryBase()
        self.delta = Delta(self.base)
        self.frozen = False
        self.core = CoreDriver(self.delta, OWNED)
        self.model = self.new_model()
        self.elsewhere: dict[bytes, Id] = {}
        self.sent: set[Id] = set()
        self.lives: dict[bytes, tuple[str, set[str]]] = {}
        self.used_ms: dict[str, int] = {}
        self.stopped: set[tuple[int, int]] = set()
        """Sessions and handles that are to get nothing more."""
        self.begin()

    def new_model(self) -> OptionsModel:
        return OptionsModel(self.options, FAR)

    def begin(self) -> None:
        self.puller_session = self.core.session()
        self.change(configure(DEAD, KeyOptions(1000)), configure(FULL, KeyOptions(capacity_messages=CAPACITY)))
        self.model.configure(DEAD, 1000, self.key_row(DEAD).head)
        self.model.configure(FULL, 1, self.key_row(FULL).head)  # It stays as a key with a history does.
        self.model.key(FULL).history = 0
        for owner in OWNERS[:2]:
            self.opens_a_session(1 << 20, owner)
        for queue in QUEUES[:2]:
            self.declares(queue)
            self.binds(queue, [*KEYS[:2], FULL], wire.START_UNSPECIFIED, 0)
            self.attach(self.sessions[0], queue, 4, 1000)

    def key_row(self, name: str) -> KeyRow:
        row = self.core.tables.key.get(self.core.state.full_name(name.encode()))
        assert row is not None
        return decode_key(row)

    # Changes.

    def declaring(self, queue: str) -> wire.Step:
        return wire.Step(declares=wire.Declares(queues=[queue.encode()], options=self.options[queue].to_wire()))

    @rule(queue=queues)
    def declares(self, queue: str) -> None:
        super().declares(queue)
        self.used_ms[queue] = self.core.now_ms

    @rule(queue=queues)
    def declares_otherwise(self, queue: str) -> None:
        """With one option more, or one less: refused if the queue exists."""
        if queue in self.model.queues:
            other = self.options[queue].to_wire()
            other.ack_timeout_ms = 0 if other.ack_timeout_ms else 5000
            step = wire.Step(declares=wire.Declares(queues=[queue.encode()], options=other))
            (refusal,) = self.change(step).steps[0].refusals
            assert isinstance(from_wire(refusal.error), Conflict)

    @rule(
        queue=queues,
        names=st.lists(st.one_of(keys, st.sampled_from([DEAD, FULL])), min_size=1, max_size=3),
        start=st.sampled_from([wire.START_UNSPECIFIED] * 3 + [wire.START_EARLIEST, wire.START_LAST, wire.START_OFFSET]),
        value=small,
    )
    def binds(self, queue: str, names: list[str], start: wire.Start.ValueType, value: int) -> None:
        if start != wire.START_UNSPECIFIED:
            self.take_all()
            self.flush_acks()
        super().binds(queue, names, start, value)
        if not self.frames[self.sequence][1].steps[0].refusals:
            self.used_ms[queue] = self.core.now_ms

    @rule(queue=queues, messages=st.integers(1, 4))
    def publishes_to_the_full(self, queue: str, messages: int) -> None:
        row, routed = self.key_row(FULL), self.model.live(FULL)
        sent = [b"full"] * messages
        outcome = self.change(publish(FULL, *sent)).steps[0]
        left = [offset for binding in self.model.members(FULL) for offset in binding.left]
        assert row.low <= min(left, default=row.head)
        full = row.head - row.low + messages > CAPACITY
        if outcome.refusals:
            assert full and isinstance(from_wire(outcome.refusals[0].error), ResourceExhausted)
            assert self.key_row(FULL).head == row.head
        else:
            assert not (full and routed)
            self.model.publish(FULL, sent, outcome.offsets[0], outcome.queues[0])

    @rule(names=st.lists(queues, min_size=2, max_size=3, unique=True), if_unused=st.booleans(), if_empty=st.booleans())
    def drops_many(self, names: list[str], if_unused: bool, if_empty: bool) -> None:
        self.take_all()
        self.flush_acks()
        stays = {
            queue: (if_unused and self.used(queue)) or (if_empty and self.model.depth(queue)[0] > 0)
            for queue in names
            if queue in self.model.queues
        }
        refusals = self.change(drop_if(*names, unused=if_unused, empty=if_empty)).steps[0].refusals
        refused = {names[refusal.request]: from_wire(refusal.error) for refusal in refusals}
        for queue in names:
            if queue not in stays:
                assert isinstance(refused[queue], NoSuchQueue)
            elif stays[queue]:
                assert isinstance(refused[queue], Conflict)
            else:
                assert queue not in refused
                self.model.drop(queue)
                self.dropped(queue)

    @rule(queue=queues, if_unused=st.booleans(), if_empty=st.booleans())
    def drops(self, queue: str, if_unused: bool, if_empty: bool) -> None:
        super().drops(queue, False, if_unused, if_empty)
        if queue not in self.model.queues:
            self.dropped(queue)

    def dropped(self, queue: str) -> None:
        """Sessions would wait for the next queue of this name, and race for it if it is exclusive."""
        for session in self.sessions if queue in self.model.holders else ():
            self.core.dispatcher.detach(session, QUEUES.index(queue))
        for _, may in self.lives.values():
            may.discard(queue)

    @rule(names=st.lists(queues, min_size=2, max_size=3, unique=True))
    def purges_many(self, names: list[str]) -> None:
        self.take_all()
        self.flush_acks()
        outcome = self.change(purge(*names)).steps[0]
        refused = {refusal.request for refusal in outcome.refusals}
        for number, queue in enumerate(names):
            assert (number in refused) == (queue not in self.model.queues)
            if number not in refused:
                assert (outcome.messages[number], outcome.positions[number]) == (self.model.depth(queue)[0], 0)
        self.take_all()
        for queue in set(names) & self.model.queues.keys():
            self.model.purge(queue)

    @rule(data=st.data(), atomic=st.booleans(), sent=bodies)
    def acks_in_a_change(self, data: st.DataObject, atomic: bool, sent: list[bytes]) -> None:
        """Also what rests, and what waits for a record or for its copy; with a publish behind it."""
        self.take_all()
        self.flush_acks()
        left = [
            (queue, key, offset)
            for queue, bindings in self.model.queues.items()
            for key, binding in bindings.items()
            for offset in binding.left
        ]
        if left:
            waiting = [one for one in left if one in self.model.letters or self.rests(Id(*one))]
            queue, key, offset = data.draw(st.sampled_from(sorted(waiting or left)))
            self.sequence += 1
            head, steps = (
                ChangeHead(PRODUCER, self.sequence, self.sequence - 5 if self.sequence > 5 else 0),
                (
                    acks((queue, key, offset, offset + 1)),
                    publish("c", *sent),
                ),
            )
            outcome = self.core.change(*steps, head=head, atomic=atomic)
            assert not any(step.refusals for step in outcome.steps)
            if atomic:
                assert self.core.change(*steps, head=head, atomic=True) == outcome, "a repeat is answered as before"
            self.frames[self.sequence] = steps, outcome
            self.model.ack_in_change(queue, key, offset, offset + 1)
            self.model.publish("c", sent, outcome.steps[1].offsets[0], outcome.steps[1].queues[0])

    def rests(self, one: Id) -> bool:
        """Its delay is not over, or no record has its count."""
        binding = self.model.binding(one)
        return one in self.model.pending or (binding is not None and one.offset in binding.resting)

    def repeats_a_frame(self, data: st.DataObject) -> None:
        """No rule here: what frames hold does not tell which were atomic."""

    def binds_many(self, queue: str) -> None:
        """No rule of its own here."""
        super().binds_many(queue)

    def unbinds_many(self, queue: str) -> None:
        """No rule of its own here."""
        super().unbinds_many(queue)

    @rule(name=keys, messages=st.integers(1, 3))
    def publishes_live(self, name: str, messages: int) -> None:
        self.take_all()
        before = self.core.state.lsn
        sent = [b"live %d.%d" % (len(self.lives), number) for number in range(messages)]
        consumed = {queue for queue in QUEUES if self.live_bound(queue, name) and self.consumers(queue)}
        certain = {queue for queue in consumed if self.is_level(queue, name)}
        self.lives[sent[0]] = name, set(consumed)
        answer = self.core.live(publish(name, *sent, live=True))
        (step,) = wire.Outcome.FromString(answer.outcome).steps
        routed = self.model.live(name)
        assert list(step.offsets) == [0] and not step.refusals and self.core.state.lsn == before
        assert routed <= step.queues[0] <= routed + self.model.zombies.get(name, 0)
        assert list(answer.consumed) == [len(consumed)]
        self.take_all()
        assert not certain & self.lives[sent[0]][1], f"a live chunk of {name} did not come to all of {certain}"

    def live_bound(self, queue: str, name: str) -> bool:
        binding = self.model.queues.get(queue, {}).get(name)
        return binding is not None and not binding.end

    def consumers(self, queue: str) -> list[Session]:
        handle = QUEUES.index(queue)
        return [session for session in (*self.sessions, self.puller_session) if self.has(session, queue, handle)]

    def has(self, session: Session, queue: str, handle: int) -> bool:
        held = self.model.queues[queue].values()
        pulls = session is self.puller_session
        pulled = pulls and any({LEASED, session.number} & binding.holders() for binding in held)
        return pulled or handle in session.attachments

    def is_level(self, queue: str, name: str) -> bool:
        """All of the key is done, and each session has room. A queue whose handle was stopped may not know yet that its
        backlog is gone: what is live may be lost to it."""
        sessions = self.consumers(queue)
        if any((one.number, QUEUES.index(queue)) in self.stopped for one in sessions):
            return False
        if self.waits_to_pass_over(queue, name):
            return False
        return not self.model.queues[queue][name].left and all(
            one is not self.puller_session and one.room_bytes > 1000 for one in sessions
        )

    def waits_to_pass_over(self, queue: str, name: str) -> bool:
        """Whether messages came back to a queue, expired since, and nobody has the window to be told of the gap: until
        then it is behind the key, and what is live is lost to it."""
        queue_id = self.core.tables.queue_by_name.get(queue.encode())
        feed = None if queue_id is None else self.core.dispatcher.feeds.get(queue_id)
        if feed is None or any(attachment.window_open for attachment in feed.attachments.values()):
            return False
        return any(stream.key == name.encode() and stream.returned for stream in feed.streams.values())

    # Consumers.

    @precondition(lambda self: len(self.sessions) < 3)
    @rule(window_bytes=st.sampled_from([10, 60, 1 << 20]), owner=st.sampled_from(OWNERS))
    def opens_a_session(self, window_bytes: int, owner: bytes) -> None:
        self.sessions.append(self.core.node.new_session(window_bytes, owner))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), queue=queues, messages=st.integers(1, 6), size=st.sampled_from([4, 1000]))
    def attaches(self, data: st.DataObject, queue: str, messages: int, size: int) -> None:
        self.attach(data.draw(st.sampled_from(self.sessions)), queue, messages, size)

    def attach(self, session: Session, queue: str, messages: int, size: int) -> None:
        exists, holders = queue in self.model.queues, self.model.holders.get(queue)
        if holders is not None and not exists:
            return  # See `dropped`.
        self.take_all()
        self.stopped.discard((session.number, QUEUES.index(queue)))
        before = 0 if holders is None else holders.session
        expected = exists and (holders is None or holders.attach(session.number, session.owner))
        assert self.core.attach(session, queue, QUEUES.index(queue), messages, size) == expected
        for one in self.sessions:
            one.ended_handles.take(100)
        if expected:
            self.model.back(queue, session.number)
            if before:
                owner = next((one.owner for one in self.sessions if one.number == before), b"")
                same = before == session.number or bool(owner and owner == session.owner)
                self.model.back(queue, before, "left" if same else "taken")

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), queue=queues)
    def stops(self, data: st.DataObject, queue: str) -> None:
        """What the session has out stays out; it gets nothing more, whatever comes back."""
        self.take_all()
        session = data.draw(st.sampled_from(self.sessions))
        if QUEUES.index(queue) in session.attachments:
            self.core.dispatcher.stop(session, QUEUES.index(queue))
            self.stopped.add((session.number, QUEUES.index(queue)))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), queue=queues)
    def detaches(self, data: st.DataObject, queue: str) -> None:
        self.take_all()
        session = data.draw(st.sampled_from(self.sessions))
        self.core.dispatcher.detach(session, QUEUES.index(queue))
        self.model.back(queue, session.number)
        if queue in self.model.holders:
            self.model.holders[queue].detach(session.number)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def closes(self, data: st.DataObject) -> None:
        self.take_all()
        before = list(self.sessions)
        super().closes(data)
        for session in before:
            if session not in self.sessions:
                for holders in self.model.holders.values():
                    holders.close(session.number)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def acks_everything(self, data: st.DataObject) -> None:
        self.acks_all(data.draw(st.sampled_from(self.sessions)))

    def acks_all(self, session: Session) -> None:
        self.take(session)
        for queue in QUEUES:
            for name in list(self.model.queues.get(queue, ())):
                for offset in self.given(queue, name, session.number):
                    self.core.ack(session, name, offset, offset + 1, QUEUES.index(queue))
                    self.model.ack(queue, name, offset, offset + 1, session.number)

    def take(self, session: Session) -> None:
        self.core.gaps.clear()
        for delivery in self.core.deliveries(session):
            for handle in delivery.handles:
                if delivery.live:
                    self.live_came(QUEUES[handle], delivery)
                    continue
                assert (session.number, handle) not in self.stopped, "it was stopped"
                for name, offset, body in bodies_of(delivery):
                    one = Id(QUEUES[handle], name, offset)
                    if self.model.bound(one.queue):
                        counted = self.model.counts.get(one, 0)
                        assert delivery.redelivered == counted, f"{one}: {delivery.redelivered}, not {counted} times"
                    self.model.given(*one, body, session.number)
        self.hear_gaps()

    def live_came(self, queue: str, delivery: wire.Delivery) -> None:
        name, may = self.lives[parse_chunk(delivery.chunk).bodies[0]]
        assert (name.encode(), delivery.first, delivery.redelivered) == (delivery.key, 0, 0)
        assert queue in may, f"a live chunk of {name} comes to {queue} twice, or without being consumed"
        may.discard(queue)

    @precondition(lambda self: self.model.queues)
    @rule(data=st.data(), messages=st.integers(1, 4), lease_ms=st.sampled_from([0, 100]))
    def pulls(self, data: st.DataObject, messages: int, lease_ms: int) -> None:
        self.take_all()
        super().pulls(data, messages, lease_ms)
        for queue, bindings in self.model.queues.items() if not lease_ms else ():
            for key, binding in bindings.items() if self.options[queue].ack_timeout_ms else ():
                for offset in self.given(queue, key, self.puller_session.number):
                    assert binding.given
                    self.model.since.setdefault(Id(queue, key, offset), self.core.now_ms)

    @rule()
    def leases_end(self) -> None:
        self.take_all()
        self.core.now_ms += 200
        self.core.end_leases()
        self.leases_over()

    def leases_over(self) -> None:
        for queue in QUEUES:
            self.model.back(queue, LEASED, "timeout")
        self.model.end_timeouts(self.core.now_ms, begins=False)

    # The broker's own work.

    @rule(later_ms=st.sampled_from([0, 600]))
    def maintains(self, later_ms: int) -> None:
        self.take_all()
        self.core.pump()
        self.core.now_ms += later_ms
        while self.ticks(bool(later_ms)):
            later_ms = 0

    def ticks(self, leases_over: bool) -> bool:
        """One tick, and what the model has of it. Returns whether a record did something."""
        unused = {queue for queue in self.model.queues if not self.used(queue)}
        self.core.end_leases()  # Else they would end in turns after the tick, and be decided in the next one.
        found = self.core.maintain()
        self.model.tick(self.core.now_ms, DELAY_MS)
        for queue in QUEUES if leases_over else ():
            self.model.back(queue, LEASED, "timeout")
        self.model.end_timeouts(self.core.now_ms, begins=True)
        self.expires(unused)
        for one in self.sent & self.model.letters.keys():
            self.model.done(one)
        self.sent.clear()
        self.model.records()
        self.publishes_due()
        self.collects()
        self.take_all()
        return found

    def expires(self, unused: set[str]) -> None:
        """Queues that ended were transient, and nothing consumed them for their time."""
        for queue in list(self.model.queues):
            if self.core.tables.queue_by_name.get(queue.encode()) is None:
                time_ms = 1000 * self.options[queue].expires_after_s
                assert time_ms and queue in unused and self.core.now_ms - self.used_ms[queue] >= time_ms
                self.model.drop(queue)
                self.dropped(queue)

    @invariant()
    @precondition(lambda self: hasattr(self, "core"))
    def notes_what_is_used(self) -> None:
        for queue in self.model.queues:
            if self.used(queue):
                self.used_ms[queue] = self.core.now_ms

    @rule(half_hours=st.sampled_from([1, 2, 5, 5]))
    def waits(self, half_hours: int) -> None:
        """So long that acks in time are over, and queues that nothing consumes; or half as long."""
        self.maintains(2000)  # Nothing is delayed any more.
        for _ in range(half_hours):
            self.maintains(HOUR_MS // 2)
            self.notes_what_is_used()
        self.maintains(0)
        for queue in self.model.queues if half_hours == 5 else ():
            if self.may_be_used(queue):
                continue
            time_ms = 1000 * self.options[queue].expires_after_s
            idle_ms = self.core.now_ms - self.used_ms[queue]
            assert not time_ms or idle_ms < 2 * time_ms, f"{queue} should have ended {idle_ms - time_ms} ms ago"

    def may_be_used(self, queue: str) -> bool:
        """Whether it is open that a session consumes the queue, though the model does not say so."""
        return False

    def collects(self) -> None:
        """The copies that came to the dead-letter key are those that the model expects: each once."""
        row, key = self.key_row(DEAD), self.model.key(DEAD)
        rows = LogRows(self.core.tables.log, row)
        for offset in range(key.head, row.head):
            stored = rows.at(offset)
            assert stored is not None and stored.first == offset
            one, reason, times, body = _dead(stored.opened())
            assert self.model.copies.pop(one, None) == (reason, times), f"{one} died of {reason} after {times}"
            assert body == self.model.keys[one.key].messages[one.offset]
            self.model.publish(DEAD, [body], offset, self.model.live(DEAD))
        assert not self.model.copies, f"there is no copy of {self.model.copies}"

    @rule(fate=st.sampled_from(["sent", "sent", "lost on the way", "its answer is lost"]))
    def the_courier_goes(self, fate: str) -> None:
        letters = self.core.dispatcher.letters
        letter = letters.take(self.core.now_ms)
        if letter is None:
            return
        one, reason, times, body = _dead(Chunk.FromString(letter.chunk))
        assert letter.key == FAR.encode() and self.model.letters[one] == reason, (one, self.model.letters[one], reason)
        assert times == self.model.counts[one] and body == self.model.keys[one.key].messages[one.offset]
        if fate == "lost on the way":
            letters.not_sent(letter, self.core.now_ms)
            return
        assert self.elsewhere.setdefault(letter.producer, one) == one, "two letters have one producer"
        if fate == "sent":
            letters.sent(letter)
            self.sent.add(one)
        else:
            letters.not_sent(letter, self.core.now_ms)

    @rule()
    def restarts(self) -> None:
        """A new leader over the same tables."""
        self.take_all()
        self.flush_acks()
        self.core.restart(advanced=[row[ID] for _, row in self.core.tables.key.scan()])
        self.sessions.clear()
        self.puller_session = self.core.session()
        self.model.restart()
        self.sent.clear()
        for _, may in self.lives.values():
            may.clear()

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        self.take_all()
        for session in [*self.sessions, self.puller_session]:
            self.leaves(session)
        self.sessions.clear()
        self.puller_session = self.core.session()
        self.core.wall_ahead_ms = WALL_AHEAD_MS
        self.maintains(2000)
        self.sends_letters()
        super().teardown()

    def sends_letters(self) -> None:
        """All letters. After a restart they wait until their queue is consumed."""
        self.opens_a_session(1 << 20, OWNERS[0])
        (session,) = self.sessions
        for queue in list(self.model.queues):
            self.attach(session, queue, 10, 1000)
        for number in range(1, 1001):
            if not self.model.letters:
                break
            self.acks_all(session)
            self.the_courier_goes("sent")
            self.maintains(0 if number % 20 else 600)  # After one that was lost, the slice waits before the next.
        assert not self.model.letters, "letters are forgotten"
        self.acks_all(session)
        self.leaves(session)
        self.sessions.clear()

    def leaves(self, session: Session) -> None:
        self.core.dispatcher.close(session)
        for queue in QUEUES:
            self.model.back(queue, session.number)
            if session is self.puller_session:
                self.model.back(queue, LEASED)
        for holders in self.model.holders.values():
            holders.close(session.number)


def _dead(chunk: Chunk) -> tuple[Id, str, int, bytes]:
    """Returns which message a copy is of, why it died, how often it was delivered, and its body."""
    (body,), fields = chunk.bodies, chunk.headers[0].fields
    one = Id(fields["shoal-queue"].decode(), fields["shoal-key"].decode(), int(fields["shoal-offset"]))
    return one, fields["shoal-reason"].decode(), int(fields["shoal-deliveries"]), body
