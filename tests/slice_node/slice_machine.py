"""Core and dispatch side by side with the reference model: the steps, for hypothesis, which draws thousands of them.

Long because a state machine is one class.
"""

from __future__ import annotations

from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal_contract.errors import Conflict, NoSuchQueue, OutOfRange, from_wire
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import ChangeHead
from shoal_slice_node.core.dispatch.acks_in_flight import AckBatch, NackTerms
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.read.reading import describe_queue, peek
from shoal_slice_node.core.rows.key_row import ID, head_of, low_of
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs import verb

from .core_driver import (
    WALL_AHEAD_MS,
    CoreDriver,
    bind,
    bodies_of,
    configure,
    declare,
    drop_if,
    publish,
    purge,
    unbind,
)
from .memory_base import MemoryBase
from .reference_model import ReferenceModel

QUEUES = ("p", "q", "r")
MANY = tuple(f"m{number}" for number in range(60))
KEYS = ("a", "b", "c")
PRODUCER = b"one-producer-id!"
LEASED = 0
"""In the model, who holds what was pulled under a lease: pulls of session 0."""
DELAY_MS = 300
CAPACITY = 6
"""Of a key that drops the oldest: more than a chunk has."""
queues, keys = st.sampled_from(QUEUES), st.sampled_from(KEYS)
starts = st.sampled_from([wire.START_UNSPECIFIED] * 3 + [wire.START_EARLIEST, wire.START_LAST, wire.START_OFFSET])
small = st.integers(0, 6)
bodies = st.lists(st.binary(max_size=6), min_size=1, max_size=5)


class SliceMachine(RuleBasedStateMachine):
    """Handle of a queue in a session: its number in QUEUES."""

    configured: tuple[str, ...] = KEYS

    def __init__(self) -> None:
        super().__init__()
        self.model = ReferenceModel()
        self.sequence = 0
        self.frames: dict[int, tuple[tuple[wire.Step, ...], wire.Outcome]] = {}
        self.sessions: list[Session] = []
        self.under_way: list[tuple[AckBatch, int]] = []

    @initialize()
    def open(self) -> None:
        self.core = CoreDriver()
        self.begin()

    def begin(self) -> None:
        """Two queues bound and consumed, so that most steps meet something."""
        self.puller_session = self.core.session()
        self.opens_a_session(1 << 20)
        for queue in QUEUES[:2]:
            self.declares(queue)
            self.binds(queue, list(KEYS[:2]), wire.START_UNSPECIFIED, 0)
            self.core.attach(self.sessions[0], queue, QUEUES.index(queue), 4, 1000)

    def change(self, *steps: wire.Step) -> wire.Outcome:
        self.sequence += 1
        settled = max(0, self.sequence - 5)
        outcome = self.core.change(*steps, head=ChangeHead(PRODUCER, self.sequence, settled))
        self.frames[self.sequence] = (steps, outcome)
        return outcome

    # Changes.

    @rule(queue=queues)
    def declares(self, queue: str) -> None:
        self.change(self.declaring(queue))
        self.model.declare(queue)

    def declaring(self, queue: str) -> wire.Step:
        return declare(queue)

    @rule(queue=queues, names=st.lists(keys, min_size=1, max_size=3), start=starts, value=small)
    def binds(self, queue: str, names: list[str], start: wire.Start.ValueType, value: int) -> None:
        if start != wire.START_UNSPECIFIED:
            self.take_all()
        before = [name for name, binding in self.model.queues.get(queue, {}).items() if not binding.end]
        outcome = self.change(bind(queue, *names, start=start, value=value)).steps[0]
        assert bool(outcome.refusals) >= (queue not in self.model.queues)
        if outcome.refusals:
            assert queue not in self.model.queues or start == wire.START_OFFSET
            return
        bound = [at for at, name in enumerate(names) if name in before or name in names[:at]]
        assert list(outcome.bound_before) == (bound if start == wire.START_OFFSET else [])
        for name, answer in zip(names, outcome.offsets, strict=True):
            self.model.bind(queue, name, start, value, answer)

    @rule(queue=queues)
    def binds_many(self, queue: str) -> None:
        """So many that they need buckets."""
        outcome = self.change(bind(queue, *MANY)).steps[0]
        for name, answer in zip(MANY, () if outcome.refusals else outcome.offsets, strict=not outcome.refusals):
            self.model.bind(queue, name, wire.START_UNSPECIFIED, 0, answer)

    @rule(queue=queues, names=st.lists(keys, min_size=1, max_size=3), discard=st.booleans())
    def unbinds(self, queue: str, names: list[str], discard: bool) -> None:
        if discard:
            self.take_all()
        outcome = self.change(unbind(queue, *names, discard=discard)).steps[0]
        if queue in self.model.queues:
            for name, answer in zip(names, outcome.offsets, strict=True):
                self.model.unbind(queue, name, discard, answer)

    @rule(queue=queues)
    def unbinds_many(self, queue: str) -> None:
        self.take_all()
        outcome = self.change(unbind(queue, *MANY, discard=True)).steps[0]
        if queue in self.model.queues:
            for name, answer in zip(MANY, outcome.offsets, strict=True):
                self.model.unbind(queue, name, True, answer)

    @rule(
        name=st.one_of(keys, keys, st.sampled_from(["@" + queue for queue in QUEUES]), st.sampled_from(MANY[:2])),
        sent=bodies,
    )
    def publishes(self, name: str, sent: list[bytes]) -> None:
        self.take_all()
        outcome = self.change(publish(name, *sent)).steps[0]
        self.model.publish(name, sent, outcome.offsets[0], outcome.queues[0])
        self.gives_up()

    def gives_up(self) -> None:
        """The model hears of what capacities made the core give up."""
        for name in KEYS:
            row = self.core.tables.key.get(self.core.state.full_name(name.encode()))
            if row is not None:
                self.model.give_up(name, low_of(row))
        self.model.fresh.clear()

    @rule(names=st.lists(keys, min_size=2, max_size=4), sent=bodies)
    def publishes_to_several(self, names: list[str], sent: list[bytes]) -> None:
        self.take_all()
        outcome = self.change(*(publish(name, *sent) for name in names))
        for name, step in zip(names, outcome.steps, strict=True):
            self.model.publish(name, sent, step.offsets[0], step.queues[0])
        self.gives_up()

    @rule(name=keys)
    def publishes_mandatory(self, name: str) -> None:
        self.take_all()
        outcome = self.change(publish(name, b"must", mandatory=True)).steps[0]
        if outcome.refusals:
            assert not self.model.live(name)
        else:
            self.model.publish(name, [b"must"], outcome.offsets[0], outcome.queues[0])
            self.gives_up()

    @rule(name=keys, sent=bodies, after_ms=st.sampled_from([-5, 0, 300, 1000]))
    def publishes_later(self, name: str, sent: list[bytes], after_ms: int) -> None:
        not_before_ms = max(1, self.core.wall_ms + after_ms)
        outcome = self.change(publish(name, *sent, not_before_ms=not_before_ms)).steps[0]
        assert (list(outcome.offsets), list(outcome.queues)) == ([0], [0])
        self.model.delay(name, sent, not_before_ms)

    @rule(name=keys, history=st.sampled_from([0, 1, 3]), capacity=st.sampled_from([0, 0, CAPACITY]))
    def configures(self, name: str, history: int, capacity: int) -> None:
        """A capacity that is exceeded already is kept from the next publish on."""
        row = self.core.tables.key.get(self.core.state.full_name(name.encode()))
        if row is not None and head_of(row) - low_of(row) > CAPACITY:
            capacity = 0
        policy = "drop_oldest" if capacity else "reject"
        self.change(configure(name, KeyOptions(history, capacity_messages=capacity, policy=policy)))
        row = self.core.tables.key.get(self.core.state.full_name(name.encode()))
        self.model.configure(name, history, 0 if row is None else head_of(row), capacity)

    @rule(ahead_ms=st.sampled_from([-400, 0, 0, 200]))
    def the_clock_jumps(self, ahead_ms: int) -> None:
        """The machine's clock is set: ahead of the one that only grows, or back behind it."""
        self.core.wall_ahead_ms = WALL_AHEAD_MS + ahead_ms

    def publishes_due(self) -> None:
        """The model hears of what the last tick published."""
        due = self.model.take_due(self.core.wall_ms)
        left: dict[str, int] = {}
        routed = [self.model.live(name) for name, _, _ in due]
        for (name, sent, _), queues in zip(due, routed, strict=True):
            kept = queues or self.model.key(name).history
            left[name] = left.get(name, 0) + (len(sent) if kept else 0)
        for (name, sent, ttl_ms), queues in zip(due, routed, strict=True):
            row = self.core.tables.key.get(self.core.state.full_name(name.encode()))
            kept = queues or self.model.key(name).history
            first = head_of(row) - left[name] if row is not None and kept else 0
            left[name] -= len(sent) if kept else 0
            self.model.publish(name, sent, first, queues, ttl_ms)
        self.gives_up()

    @rule(queue=queues, again=st.booleans(), if_unused=st.booleans(), if_empty=st.booleans())
    def drops(self, queue: str, again: bool, if_unused: bool, if_empty: bool) -> None:
        """On conditions or not."""
        self.take_all()
        if if_empty:
            self.flush_acks()
        stays = queue in self.model.queues and (
            (if_unused and self.used(queue)) or (if_empty and self.model.depth(queue)[0] > 0)
        )
        dropping = drop_if(queue, unused=if_unused, empty=if_empty)
        outcome = self.change(dropping, *([self.declaring(queue)] if again else []))
        refused = [from_wire(refusal.error) for refusal in outcome.steps[0].refusals]
        if queue not in self.model.queues:
            assert isinstance(refused[0], NoSuchQueue)
        elif stays:
            assert isinstance(refused[0], Conflict)
            return
        else:
            assert not refused
            self.model.drop(queue)
        if again:
            self.model.declare(queue)

    @rule(
        queue=queues,
        published=st.booleans(),
        bindings=st.sampled_from([1, 30, 5000]),
        between=st.sampled_from(["nothing", "binds_many", "unbinds_many"]),
    )
    def purges(self, queue: str, published: bool, bindings: int, between: str) -> None:
        """Behind a publish in the same frame; in one part, or in several with other changes in between."""
        self.take_all()
        self.flush_acks()
        steps = [publish("b", b"sent")] if published and not self.model.key("b").capacity else []
        with patch.object(verb, "PURGE_BINDINGS_MAX", bindings):
            outcome = self.change(*steps, purge(queue)).steps
            if steps:
                self.model.publish("b", [b"sent"], outcome[0].offsets[0], outcome[0].queues[0])
            assert bool(outcome[-1].refusals) == (queue not in self.model.queues)
            if queue not in self.model.queues:
                return
            backlog, dropped, position = self.model.depth(queue)[0], outcome[-1].messages[0], outcome[-1].positions[0]
            if position and between != "nothing":
                getattr(self, between)(queue)
            while position:
                (step,) = self.change(purge(queue, positions=[position])).steps
                dropped, position = dropped + step.messages[0], step.positions[0]
        assert dropped == backlog if between == "nothing" else dropped <= backlog
        self.take_all()
        self.model.purge(queue)

    @precondition(lambda self: self.frames)
    @rule(data=st.data())
    def repeats_a_frame(self, data: st.DataObject) -> None:
        sequence = data.draw(st.integers(max(1, self.sequence - 6), self.sequence))
        steps, outcome = self.frames[sequence]
        head = ChangeHead(PRODUCER, sequence, 0)
        if sequence > self.sequence - 5:
            assert self.core.change(*steps, head=head) == outcome
        else:
            with pytest.raises(OutOfRange):
                self.core.change(*steps, head=head)

    # Consumers.

    @precondition(lambda self: len(self.sessions) < 3)
    @rule(window_bytes=st.sampled_from([10, 60, 1 << 20]))
    def opens_a_session(self, window_bytes: int) -> None:
        self.sessions.append(self.core.session(window_bytes))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), queue=queues, messages=st.integers(1, 6), size=st.sampled_from([4, 1000]))
    def attaches(self, data: st.DataObject, queue: str, messages: int, size: int) -> None:
        session = data.draw(st.sampled_from(self.sessions))
        attached = self.core.attach(session, queue, QUEUES.index(queue), messages, size)
        assert attached == (queue in self.model.queues)
        self.model.back(queue, session.number)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), queue=queues)
    def detaches(self, data: st.DataObject, queue: str) -> None:
        session = data.draw(st.sampled_from(self.sessions))
        self.core.dispatcher.detach(session, QUEUES.index(queue))
        self.model.back(queue, session.number)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def closes(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.sessions))
        self.sessions.remove(session)
        self.core.dispatcher.close(session)
        for queue in QUEUES:
            self.model.back(queue, session.number)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def takes(self, data: st.DataObject) -> None:
        self.take(data.draw(st.sampled_from(self.sessions)))

    @rule()
    def pumps(self) -> None:
        self.core.pump()

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), queue=queues, name=keys)
    def acks(self, data: st.DataObject, queue: str, name: str) -> None:
        session = data.draw(st.sampled_from(self.sessions))
        self.take(session)
        given = self.given(queue, name, session.number)
        low = data.draw(st.sampled_from([0, *given]))
        to = data.draw(st.sampled_from(given or [1])) + data.draw(st.integers(0, 2))
        self.core.ack(session, name, low, to, QUEUES.index(queue))
        self.model.ack(queue, name, low, to, session.number)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), queue=queues, name=keys, delay_ms=st.sampled_from([0, DELAY_MS]), unseen=st.booleans())
    def nacks(self, data: st.DataObject, queue: str, name: str, delay_ms: int, unseen: bool) -> None:
        """`unseen`: no program was given the messages, so there is no delay."""
        delay_ms = 0 if unseen else delay_ms
        session = data.draw(st.sampled_from(self.sessions))
        self.take(session)
        given = self.given(queue, name, session.number)
        low = data.draw(st.sampled_from([0, *given]))
        to = data.draw(st.sampled_from(given or [1])) + data.draw(st.integers(0, 2))
        attachment = session.attachments.get(QUEUES.index(queue))
        row = self.core.tables.key.get(self.core.state.full_name(name.encode()))
        if attachment is not None and row is not None:
            self.core.dispatcher.nack(attachment, row[ID], low, to, NackTerms(delay_ms, unseen))
            self.model.nack(queue, name, low, to, session.number, bool(delay_ms), unseen)

    @precondition(lambda self: self.model.queues)
    @rule(data=st.data(), messages=st.integers(1, 4), lease_ms=st.sampled_from([0, 100]))
    def pulls(self, data: st.DataObject, messages: int, lease_ms: int) -> None:
        queue = data.draw(st.sampled_from(sorted(self.model.queues)))
        self.core.gaps.clear()
        found = [m for d in self.core.pull(self.puller_session, queue, messages, lease_ms) for m in bodies_of(d)]
        for gap in self.core.gaps:
            self.model.told(queue, gap.key.decode(), gap.first, gap.to, gap.why)
        assert len(found) <= messages
        for name, offset, body in found:
            self.model.given(queue, name, offset, body, LEASED)
            self.model.queues[queue][name].given[offset] = LEASED if lease_ms else self.puller_session.number

    @rule(queue=queues, name=keys, low=st.integers(0, 8), count=st.integers(0, 9))
    def acks_pulled(self, queue: str, name: str, low: int, count: int) -> None:
        self.settles_pulled(queue, name, low, count, nacks=False)

    @rule(queue=queues, name=keys, low=st.integers(0, 8), count=st.integers(0, 9))
    def nacks_pulled(self, queue: str, name: str, low: int, count: int) -> None:
        self.settles_pulled(queue, name, low, count, nacks=True)

    def settles_pulled(self, queue: str, name: str, low: int, count: int, nacks: bool) -> None:
        row = self.core.tables.key.get(self.core.state.full_name(name.encode()))
        attachment = self.puller_session.pullers.get(self.core.tables.queue_by_name.get(queue.encode()) or b"")
        if attachment is None or row is None:
            return
        if nacks:
            self.core.dispatcher.nack(attachment, row[ID], low, low + count, NackTerms(DELAY_MS))
        else:
            self.core.dispatcher.ack(attachment, row[ID], low, low + count)
        for session in (LEASED, self.puller_session.number):
            if nacks:
                self.model.nack(queue, name, low, low + count, session, delayed=True)
            else:
                self.model.ack(queue, name, low, low + count, session)

    @rule()
    def leases_end(self) -> None:
        self.core.now_ms += 200
        self.core.end_leases()
        for queue in QUEUES:
            self.model.back(queue, LEASED)

    # The broker's own work.

    @rule()
    def acks_are_journaled(self) -> None:
        self.under_way.append(self.core.take_acks())

    @rule()
    def acks_are_applied(self) -> None:
        while self.under_way:
            self.core.apply_acks(*self.under_way.pop(0))

    @rule(later_ms=st.sampled_from([0, 600]))
    def maintains(self, later_ms: int) -> None:
        self.take_all()
        self.core.now_ms += later_ms
        self.core.maintain()
        self.model.tick(self.core.now_ms, DELAY_MS)
        self.publishes_due()
        if later_ms:
            self.core.end_leases()
            for queue in QUEUES:
                self.model.back(queue, LEASED)

    @precondition(lambda self: self.model.queues)
    @rule(data=st.data(), messages=small)
    def describes_and_peeks(self, data: st.DataObject, messages: int) -> None:
        self.flush_acks()
        name = data.draw(st.sampled_from(sorted(self.model.queues)))
        described = describe_queue(self.core.state, name.encode(), 0)
        assert (described.messages, described.body_bytes) == self.model.depth(name)
        queue_id = self.core.tables.queue_by_name.get(name.encode())
        assert queue_id is not None
        found = [m for d in finish(peek(self.core.state, queue_id, messages, 1 << 20)) for m in bodies_of(d)]
        assert len(found) == min(messages, described.messages)
        for key, offset, body in found:
            assert offset in self.model.queues[name][key].left and self.model.keys[key].messages[offset] == body

    def used(self, queue: str) -> bool:
        """Whether a session has attached the queue, or messages of it are pulled and not acked."""
        pulled = {LEASED, self.puller_session.number}
        return any(session.queue_of(QUEUES.index(queue)) is not None for session in self.sessions) or any(
            pulled & binding.holders() for binding in self.model.queues[queue].values()
        )

    def given(self, queue: str, name: str, session: int) -> list[int]:
        binding = self.model.queues.get(queue, {}).get(name)
        return sorted(o for o, holder in binding.given.items() if holder == session) if binding else []

    def take(self, session: Session) -> None:
        self.core.gaps.clear()
        for delivery in self.core.deliveries(session):
            for name, offset, body in bodies_of(delivery):
                for handle in delivery.handles:
                    self.model.given(QUEUES[handle], name, offset, body, session.number)
        self.hear_gaps()

    def hear_gaps(self) -> None:
        for gap in self.core.gaps:
            for handle in gap.handles:
                self.model.told(QUEUES[handle], gap.key.decode(), gap.first, gap.to, gap.why)

    def take_all(self) -> None:
        for session in self.sessions:
            self.take(session)

    def flush_acks(self) -> None:
        self.acks_are_applied()
        self.core.flush()

    @invariant()
    @precondition(lambda self: hasattr(self, "core"))
    def no_binding_is_silent(self) -> None:
        self.core.check_served()

    def teardown(self) -> None:
        """Everything still owed arrives; then all is done and the tables are sound."""
        if not hasattr(self, "core"):
            return
        self.core.wall_ahead_ms = WALL_AHEAD_MS
        self.maintains(2000)  # What waits for its time is due by then.
        assert not self.model.delayed
        for session in [*self.sessions, self.puller_session]:
            self.take(session)
            self.core.dispatcher.close(session)
            for queue in QUEUES:
                self.model.back(queue, session.number)
        for _ in range(2):
            self.maintains(600)
        self.flush_acks()
        session = self.core.session()
        for queue in self.model.queues:
            self.core.attach(session, queue, QUEUES.index(queue), 3)
        for _ in range(10_000):
            self.core.gaps.clear()
            deliveries = self.core.deliveries(session)
            self.hear_gaps()
            if not deliveries:
                break
            for delivery in deliveries:
                name = delivery.key.decode()
                for handle in delivery.handles:
                    for _, offset, body in bodies_of(delivery):
                        self.model.given(QUEUES[handle], name, offset, body, session.number)
                    self.core.ack(session, name, delivery.low, delivery.to, handle)
                    self.model.ack(QUEUES[handle], name, delivery.low, delivery.to, session.number)
        assert all(self.model.depth(queue) == (0, 0) for queue in self.model.queues), "not all of it arrived"
        assert not any(one.lost for bindings in self.model.queues.values() for one in bindings.values()), "not told"
        self.core.dispatcher.close(session)
        for name in self.configured:
            self.change(configure(name, KeyOptions()))
        self.core.settle()
        assert not self.core.dispatcher.feeds and not self.core.dispatcher.by_key, "idle queues leave no trace"
        self.check()

    def check(self) -> None:
        self.core.check()
        assert not list(self.core.tables.log.scan()), "all was consumed: nothing is kept"


class DeltaMachine(SliceMachine):
    """The same over a delta that freezes at any moment."""

    @initialize()
    def open(self) -> None:
        self.base = MemoryBase()
        self.delta = Delta(self.base)
        self.frozen = False
        self.core = CoreDriver(self.delta)
        self.begin()

    @rule()
    def freezes(self) -> None:
        if self.frozen:
            self.base.checkpoint(self.delta)
        else:
            self.delta.freeze()
        self.frozen = not self.frozen

    @precondition(lambda self: self.frozen)
    @rule()
    def melts(self) -> None:
        self.base.melt(self.delta)
        self.frozen = False

    def check(self) -> None:
        problems = list(check_tables(self.delta, local_known=False))
        assert not problems, "\n".join(map(str, problems))
        assert not list(self.delta.log.scan())


RUNS = settings(
    max_examples=150,
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
