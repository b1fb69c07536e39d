"""The verb farewell: gives queues farewells, or takes them back."""

from __future__ import annotations

from itertools import repeat
from typing import Final

from shoal_contract.arguments import FAREWELL_AFTER_S
from shoal_contract.chunk import measure_chunk
from shoal_contract.errors import Malformed, check_at_most
from shoal_contract.limits import FAREWELL_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.farewells import set_farewell, take_back
from shoal_slice_node.core.checking.columns import bounded, check_published, same
from shoal_slice_node.core.checking.session_frames import check_queue_names
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.verb import Change, Columns, Measures, Verb


def _check(number: int, step: wire.Farewells, _: Measures) -> int:
    operations = bounded(len(step.queues))
    check_queue_names(step.queues)
    FAREWELL_AFTER_S.check(step.after_s)
    if not (step.keys or step.chunks):
        if step.after_s:
            raise Malformed(
                f"step {number} takes farewells back, and says after_s {step.after_s}: that belongs to a message",
                subject="after_s",
            )
        return operations
    same(number, "farewells", "keys", len(step.keys), operations)
    same(number, "farewells", "chunks", len(step.chunks), operations)
    check_published(step.keys)
    for chunk in step.chunks:
        check_at_most("farewell bytes", len(chunk), FAREWELL_BYTES_MAX)
        messages, _bytes = measure_chunk(chunk)
        if messages != 1:
            raise Malformed(f"step {number} has a farewell of {messages} messages; it needs 1", subject="chunks")
    return operations


def _apply(change: Change, step: wire.Farewells) -> Work[wire.StepOutcome]:
    state, after_s = change.state, step.after_s
    messages = zip(step.keys or repeat(b""), step.chunks or repeat(b""), strict=False)

    def request(queue: bytes, _: int) -> int:
        key, chunk = next(messages)
        if key:
            set_farewell(state, queue, key, chunk, after_s)
        else:
            take_back(state, queue)
        return 0

    return (yield from change.each_queue(step.queues, (), request))


def _columns(step: wire.Farewells) -> Columns:
    return Columns(step.queues, step.keys, chunks=step.chunks)


FAREWELL: Final = Verb("farewell", _check, _apply, _columns, {})
