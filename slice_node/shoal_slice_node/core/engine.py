"""Applies journal records to the tables. Deterministic: the same records give the same tables, on the leader, on
replicas and in replay. Records are applied only once they are durable, so the tables never hold what may be lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat

from shoal_contract.errors import ShoalError
from shoal_contract.journal_record import Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.acks import apply_acks
from shoal_slice_node.core.binds import bind, declare, unbind
from shoal_slice_node.core.drops import drop, reclaim
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.imports import apply_imports, check_next_chunk
from shoal_slice_node.core.producers import remember, repeated_answer
from shoal_slice_node.core.publishes import publish
from shoal_slice_node.core.purges import PurgeBudget, purge
from shoal_slice_node.core.records import NO_PRODUCER, ChangeHead, Kind, decode_change, decode_ownership
from shoal_slice_node.core.state import State
from shoal_slice_node.core.tables import Tables
from shoal_slice_node.core.trims import apply_trims
from shoal_slice_node.core.watch import Watch
from shoal_slice_node.limits import PURGE_BINDINGS_MAX, REFUSALS_BYTES_MAX


class Engine:
    """`watch` says what effects are wanted; None: none (replay, replicas)."""

    def __init__(self, tables: Tables, watch: Watch | None = None) -> None:
        self.state = State(tables, watch or Watch())
        self._refusals_bytes = 0
        self._keys_done = 0

    def apply(self, record: Record, change: wire.Change | None = None) -> Effects:
        """`change`: the parsed Change of a CHANGE record, if the caller has it."""
        effects = self.state.effects = Effects()
        self.state.lsn = record.lsn
        kind = record.kind
        if kind == Kind.CHANGE:
            head, data = decode_change(record.payload)
            self._change(head, change or wire.Change.FromString(data), record.time_ms)
        elif kind == Kind.ACKS:
            apply_acks(self.state, record.payload)
        elif kind == Kind.TRIM:
            apply_trims(self.state, record.payload)
        elif kind == Kind.RECLAIM:
            reclaim(self.state, record.payload)
        elif kind == Kind.OWNERSHIP:
            self.state.set_owned(*decode_ownership(record.payload))
        else:
            raise AssertionError(f"record {record.lsn} is of kind {kind}, which this version does not know")
        return effects

    def _change(self, head: ChangeHead, change: wire.Change, time_ms: int) -> None:
        effects = self.state.effects
        numbered = head.producer != NO_PRODUCER
        try:
            repeated = repeated_answer(self.state, head) if numbered else None
            if numbered and repeated is None and change.steps and change.steps[0].HasField("imports"):
                check_next_chunk(self.state, head)
        except ShoalError as error:
            effects.refused = error
            return
        if repeated is not None:
            effects.outcome = repeated
            return
        self._refusals_bytes = 0
        outcome = wire.Outcome(steps=[self._step(step, time_ms) for step in change.steps])
        effects.outcome = outcome.SerializeToString()
        if numbered:
            remember(self.state, head, effects.outcome, time_ms)

    def _step(self, step: wire.Step, time_ms: int) -> wire.StepOutcome:
        counters = self.state.counters
        if step.HasField("binds"):
            binds = step.binds
            start, value = binds.start, binds.start_value
            outcome = self._memberships(binds, lambda queue, keys: bind(self.state, queue, keys, start, value))
            counters.binds += self._keys_done
            return outcome
        if step.HasField("unbinds"):
            discard = step.unbinds.discard
            outcome = self._memberships(step.unbinds, lambda queue, keys: unbind(self.state, queue, keys, discard))
            counters.unbinds += self._keys_done
            return outcome
        if step.HasField("publishes"):
            return self._publishes(step.publishes, time_ms)
        if step.HasField("imports"):
            outcome = apply_imports(self.state, step.imports, self._refusal)
            counters.declares += outcome.queues_made
            counters.binds += outcome.bindings_made
            return outcome
        if step.HasField("declares"):
            expires = step.declares.options.expires_after_s
            outcome = self._queues(step.declares.queues, lambda queue: declare(self.state, queue, expires))
            counters.declares += len(step.declares.queues) - len(outcome.refusals)
            return outcome
        if step.HasField("purges"):
            return self._purges(step.purges)
        outcome = self._queues(step.drops.queues, lambda queue: drop(self.state, queue))
        counters.drops += len(step.drops.queues) - len(outcome.refusals)
        return outcome

    def _memberships(
        self, step: wire.Binds | wire.Unbinds, request: Callable[[bytes, list[bytes]], list[int]]
    ) -> wire.StepOutcome:
        keys = list(step.keys)
        counts = step.key_counts or [1] * len(keys)
        offsets: list[int] = []
        refusals: list[wire.Refusal] = []
        position = refused = 0
        for number, (queue, count) in enumerate(zip(step.queues, counts, strict=True)):
            end = position + count
            try:
                offsets += request(queue, keys[position:end])
            except ShoalError as error:
                offsets += [0] * count
                refused += count
                refusals.append(self._refusal(number, error))
            position = end
        self._keys_done = len(keys) - refused
        return wire.StepOutcome(offsets=offsets, refusals=refusals)

    def _publishes(self, step: wire.Publishes, time_ms: int) -> wire.StepOutcome:
        outcome = wire.StepOutcome()
        offsets: list[int] = []
        queues: list[int] = []
        mandatory = step.mandatory
        counters, kept = self.state.counters, self.state.kept
        kept_before = kept.messages
        for number, (key, chunk) in enumerate(zip(step.keys, step.chunks, strict=True)):
            try:
                first, routed = publish(self.state, key, chunk, mandatory, time_ms)
            except ShoalError as error:
                first = routed = 0
                self.state.effects.published.append(None)
                outcome.refusals.append(self._refusal(number, error))
            offsets.append(first)
            queues.append(routed)
        counters.publishes += kept.messages - kept_before
        counters.chunks += len(offsets) - len(outcome.refusals)
        outcome.offsets.extend(offsets)
        outcome.queues.extend(queues)
        return outcome

    def _purges(self, step: wire.Purges) -> wire.StepOutcome:
        outcome = wire.StepOutcome()
        budget = PurgeBudget(PURGE_BINDINGS_MAX)
        positions = step.positions or repeat(0)
        for number, (queue, position) in enumerate(zip(step.queues, positions, strict=False)):
            try:
                messages, left = purge(self.state, queue, position, budget)
            except ShoalError as error:
                messages = left = 0
                outcome.refusals.append(self._refusal(number, error))
            outcome.messages.append(messages)
            outcome.positions.append(left)
        self.state.counters.purges += len(step.queues) - len(outcome.refusals) - sum(map(bool, outcome.positions))
        return outcome

    def _refusal(self, number: int, error: ShoalError) -> wire.Refusal:
        found = error.to_wire()
        self.state.counters.refusals += 1
        self._refusals_bytes += found.ByteSize()
        if self._refusals_bytes > REFUSALS_BYTES_MAX:
            found.ClearField("message")
            found.ClearField("subject")
        return wire.Refusal(request=number, error=found)

    def _queues(self, names: Iterable[bytes], request: Callable[[bytes], None]) -> wire.StepOutcome:
        outcome = wire.StepOutcome()
        for number, name in enumerate(names):
            try:
                request(name)
            except ShoalError as error:
                outcome.refusals.append(self._refusal(number, error))
        return outcome
