"""Answers repeated frames. Producers number their frames; a repeat gets the first answer again and changes nothing."""

from __future__ import annotations

from shoal_contract.errors import Conflict, OutOfRange
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import ChangeHead
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import ANSWERS_KEPT_MAX
from shoal_slice_node.core.rows.producer_row import (
    ProducerRow,
    answer_key,
    decode_answer,
    decode_producer,
    encode_answer,
    encode_producer,
)


def repeated_answer(state: State, head: ChangeHead) -> bytes | None:
    """Returns the serialized Outcome of a frame that was applied before; None: the frame is new. Raises OutOfRange if
    the answer is forgotten."""
    row = state.tables.producer.get(head.producer)
    if row is None or head.sequence > decode_producer(row).last:
        return None
    answer = state.tables.producer.get(answer_key(head.producer, head.sequence))
    if answer is None:
        last = decode_producer(row).last
        raise OutOfRange(
            f"frame {head.sequence} of this producer was answered and settled, or is too old; the last was {last}",
            subject="sequence",
            limit=last,
            value=head.sequence,
        )
    return decode_answer(answer)


def kept_answer(state: State, head: ChangeHead) -> bytes | None:
    """Returns the serialized Outcome of a frame that was applied, if it is kept."""
    answer = state.tables.producer.get(answer_key(head.producer, head.sequence))
    return None if answer is None else decode_answer(answer)


def only_step(outcome: bytes, sequence: int) -> wire.StepOutcome:
    """Returns the outcome of a change of one step. Raises Conflict if `outcome` is the answer to another change."""
    steps = wire.Outcome.FromString(outcome).steps
    if len(steps) != 1:
        raise numbered_twice(sequence)
    return steps[0]


def numbered_twice(sequence: int) -> Conflict:
    """Returns the error for a request with a number that was answered for another request."""
    return Conflict(
        f"the producer used number {sequence} before, for another request: this one was not done", subject="sequence"
    )


def remember(state: State, head: ChangeHead, outcome: bytes, time_ms: int) -> None:
    """Keeps this answer; forgets those that the producer has received, and the oldest beyond the limit."""
    table = state.tables.producer
    row = table.get(head.producer)
    old = ProducerRow(0, 0, ()) if row is None else decode_producer(row)
    kept = (*old.kept, head.sequence)
    keep_from = max(_first_above(kept, head.settled), len(kept) - ANSWERS_KEPT_MAX)
    for sequence in kept[:keep_from]:
        table.delete(answer_key(head.producer, sequence))
    table.insert(answer_key(head.producer, head.sequence), encode_answer(outcome))
    table.put(head.producer, encode_producer(ProducerRow(head.sequence, time_ms, kept[keep_from:])))


def _first_above(kept: tuple[int, ...], settled: int) -> int:
    """Returns the index of the first sequence above `settled`, or else of the last one."""
    for index, sequence in enumerate(kept):
        if sequence > settled:
            return index
    return len(kept) - 1


def heard(state: State, producer: bytes, time_ms: int) -> None:
    """Notes when the producer was heard: it asked for an answer again."""
    row = state.tables.producer.get(producer)
    assert row is not None, "only a producer that is known gets an answer again"
    state.tables.producer.put(producer, encode_producer(decode_producer(row)._replace(time_ms=time_ms)))


def forget_producer(state: State, producer: bytes, heard_ms: int) -> None:
    """Forgets a producer, if it was last heard at `heard_ms`: one that was found idle may have sent since."""
    row = state.tables.producer.get(producer)
    if row is None or decode_producer(row).time_ms != heard_ms:
        return
    for sequence in decode_producer(row).kept:
        state.tables.producer.delete(answer_key(producer, sequence))
    state.tables.producer.delete(producer)
