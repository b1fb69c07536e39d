"""Transactions side by side with the reference model, among all the other steps of test_model.

Each transaction is first applied step by step to a copy: of the model, and of the tables (an overlay, as a change that
is not atomic). Whether the copy met a refusal says what the transaction must do.
"""

from __future__ import annotations

from copy import deepcopy

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import precondition, rule

from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import ShoalError
from shoal_contract.journal_record import Record
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.rows.key_row import head_of
from shoal_slice_node.core.tables.overlay import overlay
from shoal_slice_node.core.verbs.engine import Engine

from .core_driver import acks, bind, configure, declare, publish, unbind
from .reference_model import ReferenceModel
from .slice_machine import KEYS, PRODUCER, QUEUES, RUNS, DeltaMachine, bodies, keys, queues, small
from .traces import traces_of

one_step = st.one_of(
    st.builds(declare, queues),
    st.builds(bind, queues, keys, keys),
    st.builds(lambda queue, key, discard: unbind(queue, key, discard=discard), queues, keys, st.booleans()),
    st.builds(lambda key, history: configure(key, KeyOptions(history)), keys, st.integers(0, 3)),
    st.builds(lambda key, sent, must: publish(key, *sent, mandatory=must), keys, bodies, st.booleans()),
)


class TransactionMachine(DeltaMachine):
    @rule(
        steps=st.lists(one_step, min_size=1, max_size=4),
        acked=st.lists(st.tuples(queues, keys, small, st.integers(1, 4)), max_size=3),
        at=small,
        flushed=st.booleans(),
    )
    def transacts(self, steps: list[wire.Step], acked: list[tuple[str, str, int, int]], at: int, flushed: bool) -> None:
        """`acked`: each the queue, the key, which of the messages that are left, and how many. Nothing is acked or
        discarded behind a publish: the message would be on its way to a session, and allowed to come."""
        if any(step.HasField("publishes") for step in steps):
            steps = [step for step in steps if not step.unbinds.discard]
            at = 0
        self.take_all()
        if flushed:
            self.flush_acks()
        named = [(queue, key, low := self.left(queue, key, index), low + count) for queue, key, index, count in acked]
        if named:
            steps = [*steps[:at], acks(*named), *steps[at:]]
        expected, model = self.tried(steps, flushed)
        refused = next((step.refusals[0].error for step in expected.steps if step.refusals), None)
        self.sequence += 1
        head = ChangeHead(PRODUCER, self.sequence, max(0, self.sequence - 5))
        before = traces_of(self.core.node, without=("producer",))
        try:
            outcome = self.core.change(*steps, head=head, atomic=True)
        except ShoalError as error:
            assert refused is not None and error.code == refused.code
            assert refused.message in error.message and "nothing of it was done" in error.message
            assert traces_of(self.core.node, without=("producer",)) == before
            number = next(number for number, step in enumerate(expected.steps) if step.refusals)
            remembered = wire.Outcome(steps=[wire.StepOutcome() for _ in range(number + 1)])
            first = remembered.steps[number].refusals.add(request=expected.steps[number].refusals[0].request)
            error.write(first.error)
            self.frames[self.sequence] = (tuple(steps), remembered)
            with pytest.raises(type(error), match=f"step {number} "):
                self.core.change(*steps, head=head, atomic=True)
        else:
            assert refused is None and outcome == expected
            self.model = model
            self.frames[self.sequence] = (tuple(steps), outcome)
            assert self.core.change(*steps, head=head, atomic=True) == outcome

    def left(self, queue: str, key: str, index: int) -> int:
        """The offset of a message that the queue has left to get; some other one if it has none."""
        binding = self.model.queues.get(queue, {}).get(key)
        found = sorted(binding.left) if binding is not None else []
        return found[index % len(found)] if found else index + 1

    def tried(self, steps: list[wire.Step], flushed: bool) -> tuple[wire.Outcome, ReferenceModel]:
        """What comes of the steps if each request is refused or done by itself, and the model after them. The model is
        asked up to the first refusal."""
        state, outcome, model = self.core.state, wire.Outcome(), deepcopy(self.model)
        engine, refused = Engine(overlay(self.core.tables)), False
        for number, step in enumerate(steps):
            data = wire.Change(steps=[step]).SerializeToString()
            payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
            record = Record(Kind.CHANGE, 0, state.lsn + 1 + number, state.epoch, self.core.wall_ms, payload)
            found = engine.apply(record).outcome
            assert found is not None
            outcome.steps.extend(wire.Outcome.FromString(found).steps)
            if not refused:
                follow(model, step, outcome.steps[-1], flushed, engine.state)
            refused = refused or bool(outcome.steps[-1].refusals)
        return outcome, model

    @precondition(lambda self: self.model.queues)
    @rule(data=st.data())
    def acks_what_is_not_flushed(self, data: st.DataObject) -> None:
        """A session's acks that the tables do not have yet: a transaction with the same acks is done, too."""
        self.take_all()
        held = [
            (queue, name, offset)
            for queue in self.model.queues
            for name, binding in self.model.queues[queue].items()
            for offset, session in binding.given.items()
            if name in KEYS and session in [one.number for one in self.sessions]
        ]
        if not held:
            return
        queue, name, offset = data.draw(st.sampled_from(sorted(held)))
        number = self.model.queues[queue][name].given[offset]
        session = next(one for one in self.sessions if one.number == number)
        self.core.ack(session, name, offset, offset + 1, QUEUES.index(queue))
        self.model.ack(queue, name, offset, offset + 1, number)
        self.core.change(acks((queue, name, offset, offset + 1)), atomic=True)
        self.core.check_served()


def follow(model: ReferenceModel, step: wire.Step, answer: wire.StepOutcome, flushed: bool, after: State) -> None:
    """The model takes a step of one request, or of acks, and agrees with what was refused. `flushed`: the tables have
    all acks of sessions; else they may have more left than the model. `after`: the tables after the step."""
    refused = {refusal.request for refusal in answer.refusals}
    match step.WhichOneof("step"):
        case "declares":
            assert not refused
            model.declare(step.declares.queues[0].decode())
        case "binds":
            queue = step.binds.queues[0].decode()
            assert bool(refused) == (queue not in model.queues)
            for name, offset in zip(step.binds.keys, () if refused else answer.offsets, strict=not refused):
                model.bind(queue, name.decode(), wire.START_UNSPECIFIED, 0, offset)
        case "unbinds":
            queue = step.unbinds.queues[0].decode()
            assert bool(refused) == (queue not in model.queues)
            if not refused:
                model.unbind(queue, step.unbinds.keys[0].decode(), step.unbinds.discard, answer.offsets[0])
        case "configures":
            assert not refused
            configured = step.configures.keys[0]
            row = after.tables.key.get(after.full_name(configured))
            history = step.configures.options.history_messages
            model.configure(configured.decode(), history, 0 if row is None else head_of(row))
        case "publishes":
            sent_to = step.publishes.keys[0].decode()
            if refused:
                assert step.publishes.mandatory and not model.live(sent_to)
            else:
                sent = list(parse_chunk(step.publishes.chunks[0]).bodies)
                model.publish(sent_to, sent, answer.offsets[0], answer.queues[0])
        case "acks":
            named = zip(step.acks.queues, step.acks.keys, step.acks.lows, step.acks.tos, strict=True)
            for number, (queue_name, key, low, to) in enumerate(named):
                has_left = model.has_left(queue_name.decode(), key.decode(), low, to)
                assert not has_left if number in refused else (has_left or not flushed)
                if number in refused:
                    break
                model.ack_in_change(queue_name.decode(), key.decode(), low, to)
        case kind:
            raise AssertionError(kind)


TestTransactions = pytest.mark.timeout(600)(TransactionMachine.TestCase)
TestTransactions.settings = settings(RUNS, max_examples=150)
