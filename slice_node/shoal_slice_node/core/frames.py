"""Frames checked before they are journaled: what they cannot be is refused whole and changes nothing."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from shoal_contract.errors import Malformed, TooLarge
from shoal_contract.limits import FRAME_OPERATIONS_MAX
from shoal_contract.wire import slice_pb2 as wire


def parse_change(data: bytes) -> tuple[wire.Change, int]:
    """The change and how many operations (keys, queues) it has. Raises Malformed, TooLarge."""
    change, operations = _parse(data)
    if any(step.HasField("imports") for step in change.steps):
        raise Malformed("imports come by BulkService, in runs of numbered chunks", subject="step")
    return change, operations


def _parse(data: bytes) -> tuple[wire.Change, int]:
    try:
        change = wire.Change.FromString(data)
    except DecodeError:
        raise Malformed(f"change of {len(data)} bytes cannot be read", subject="change") from None
    operations = sum(max(1, _operations(number, step)) for number, step in enumerate(change.steps))
    if operations > FRAME_OPERATIONS_MAX:
        raise TooLarge(
            f"frame has {operations} operations; the limit is {FRAME_OPERATIONS_MAX}",
            subject="operations per frame",
            limit=FRAME_OPERATIONS_MAX,
            value=operations,
        )
    return change, operations


def parse_import(data: bytes) -> tuple[wire.Change, int]:
    """As `parse_change`, of one step, Imports."""
    change, operations = _parse(data)
    if len(change.steps) != 1 or not change.steps[0].HasField("imports"):
        raise Malformed("a chunk of an import is a change of one step, imports", subject="change")
    return change, operations


def _operations(number: int, step: wire.Step) -> int:
    kind = step.WhichOneof("step")
    if kind == "binds":
        if step.binds.start not in wire.Start.values():
            raise Malformed(f"step {number} (binds) has start {step.binds.start}, unknown here", subject="start")
        return _membership_operations(number, kind, step.binds)
    if kind == "unbinds":
        return _membership_operations(number, kind, step.unbinds)
    if kind == "publishes":
        _same(number, kind, "chunks", len(step.publishes.chunks), len(step.publishes.keys))
        return len(step.publishes.keys)
    if kind == "declares":
        return len(step.declares.queues)
    if kind == "drops":
        return len(step.drops.queues)
    if kind == "purges":
        if step.purges.positions:
            _same(number, kind, "positions", len(step.purges.positions), len(step.purges.queues))
        return len(step.purges.queues)
    if kind == "imports":
        return _import_operations(number, kind, step.imports)
    raise Malformed(f"step {number} of the frame is of a kind that this slice does not know", subject="step")


def _membership_operations(number: int, kind: str, step: wire.Binds | wire.Unbinds) -> int:
    keys = len(step.keys)
    if step.key_counts:
        _same(number, kind, "key_counts", len(step.key_counts), len(step.queues))
        _same(number, kind, "keys", keys, sum(step.key_counts))
    else:
        _same(number, kind, "keys", keys, len(step.queues))
    return max(keys, len(step.queues))


def _import_operations(number: int, kind: str, step: wire.Imports) -> int:
    _same(number, kind, "key_counts", len(step.key_counts), len(step.queues))
    _same(number, kind, "keys", len(step.keys), sum(step.key_counts))
    if step.starts:
        _same(number, kind, "starts", len(step.starts), len(step.keys))
    return len(step.queues) + len(step.keys)


def _same(number: int, kind: str, column: str, found: int, expected: int) -> None:
    if found != expected:
        raise Malformed(f"step {number} ({kind}) has {found} {column}; it needs {expected}", subject=column)
