"""Checks changes completely before they are journaled: size, form, names, chunks, and what they will cost.

Live frames, imports, replay and tests all pass the same check. A frame that fails it is refused whole and changes
nothing. So `apply` refuses only for reasons in the tables: no such queue, not owner, conflict, ...

Belongs here: checks that need only the frame. Not here: checks that need the tables (binds, publishes, drops ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from shoal_contract.chunk import measure_chunk
from shoal_contract.decode_error import DecodeError
from shoal_contract.errors import Malformed, TooLarge
from shoal_contract.limits import FRAME_OPERATIONS_MAX, NAME_BYTES_MAX, PARSED_AT_ONCE_BYTES_MAX
from shoal_contract.names import check_bindable_key, check_key
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire_count import Shape, count_fields
from shoal_slice_node.core.checking.session_frames import check_queues

UNKNOWN_STEP = "step of an unknown kind"
"""The subject of the error for such a step: a frame with one is refused; in a journal it is a reason to stop."""

_AT = ord("@")
_STARTS = frozenset(wire.Start.values())
_SHAPE: Shape = {
    1: {1: {3: None}, 2: {2: None}, 3: {2: None}, 4: {}, 5: {2: None}, 6: {2: None}, 7: {2: None, 4: None}}
}
"""Change.steps, the verb in each, and its columns of numbers."""
_ENDS = frozenset(("purges", "drops"))
_GROWS = frozenset(("binds", "imports"))
_FIELDS_MAX = 4 * FRAME_OPERATIONS_MAX
"""The most fields of a valid frame: for each operation a step, a verb, a queue and a key."""


class Checked(NamedTuple):
    """A change that passed the check. `operations`: its keys and queues, at least 1 for each step. `measures`:
    (messages, body bytes) of each chunk it publishes, in order. `ends`: it purges or drops, and what that takes is not
    in `operations` (see prices). `grows`: it may give queues bindings."""

    change: wire.Change
    operations: int
    measures: list[tuple[int, int]]
    ends: bool = False
    grows: bool = False


def parse_change(data: bytes) -> Checked:
    """Parses and checks a change that a session or unary call may ask for. Raises Malformed, TooLarge, InvalidName."""
    checked = check_change(data)
    if any(step.HasField("imports") for step in checked.change.steps):
        raise Malformed("imports come by BulkService, in runs of numbered chunks", subject="step")
    return checked


def parse_import(data: bytes) -> Checked:
    """Parses and checks a chunk of an import: a change of one step, Imports. Raises as `parse_change` does."""
    checked = check_change(data)
    steps = checked.change.steps
    if len(steps) != 1 or not steps[0].HasField("imports"):
        raise Malformed("a chunk of an import is a change of one step, imports", subject="change")
    return checked


def check_change(data: bytes) -> Checked:
    """Parses and checks any change that may stand in a journal. Raises Malformed, TooLarge, InvalidName."""
    if len(data) > PARSED_AT_ONCE_BYTES_MAX and (fields := count_fields(data, _SHAPE, _FIELDS_MAX)) > _FIELDS_MAX:
        raise _too_many(fields // 4)
    try:
        change = wire.Change.FromString(data)
    except DecodeError:
        raise Malformed(f"change of {len(data)} bytes cannot be read", subject="change") from None
    if len(change.steps) > FRAME_OPERATIONS_MAX:
        raise _too_many(len(change.steps))
    operations = 0
    measures: list[tuple[int, int]] = []
    kinds: set[str | None] = set()
    for number, step in enumerate(change.steps):
        kind = step.WhichOneof("step")
        kinds.add(kind)
        check = _CHECKS.get(kind or "")
        if check is None:
            raise Malformed(f"step {number} is of a kind that this version does not know", subject=UNKNOWN_STEP)
        operations += max(1, check(number, getattr(step, kind or ""), measures))
        if operations > FRAME_OPERATIONS_MAX:
            raise _too_many(operations)
    return Checked(change, operations, measures, not kinds.isdisjoint(_ENDS), not kinds.isdisjoint(_GROWS))


def _too_many(operations: int) -> TooLarge:
    return TooLarge(
        f"frame has {operations} operations or more; the limit is {FRAME_OPERATIONS_MAX}",
        subject="operations per frame",
        limit=FRAME_OPERATIONS_MAX,
        value=operations,
    )


def _bounded(operations: int) -> int:
    """Returns `operations`. Raises TooLarge if they are too many, before names are looked at."""
    if operations > FRAME_OPERATIONS_MAX:
        raise _too_many(operations)
    return operations


def _check_binds(number: int, step: wire.Binds, _: object) -> int:
    if step.start not in _STARTS:
        raise Malformed(f"step {number} (binds) has start {step.start}, unknown here", subject="start")
    return _check_memberships(number, "binds", step)


def _check_unbinds(number: int, step: wire.Unbinds, _: object) -> int:
    return _check_memberships(number, "unbinds", step)


def _check_memberships(number: int, kind: str, step: wire.Binds | wire.Unbinds) -> int:
    operations = _bounded(max(len(step.keys), len(step.queues)))
    if step.key_counts:
        _same(number, kind, "key_counts", len(step.key_counts), len(step.queues))
        _same(number, kind, "keys", len(step.keys), sum(step.key_counts))
    else:
        _same(number, kind, "keys", len(step.keys), len(step.queues))
    check_queues(step.queues)
    _check_bindable(step.keys)
    return operations


def _check_publishes(number: int, step: wire.Publishes, measures: list[tuple[int, int]]) -> int:
    operations = _bounded(len(step.keys))
    _same(number, "publishes", "chunks", len(step.chunks), operations)
    for key in step.keys:
        if not 0 < len(key) <= NAME_BYTES_MAX or key[0] == _AT:
            check_key(key)
    measures += map(measure_chunk, step.chunks)
    return operations


def _check_declares(number: int, step: wire.Declares, _: object) -> int:
    return _check_named(number, "declares", step)


def _check_drops(number: int, step: wire.Drops, _: object) -> int:
    return _check_named(number, "drops", step)


def _check_named(number: int, kind: str, step: wire.Declares | wire.Drops) -> int:
    operations = _bounded(len(step.queues))
    if step.incarnations:
        _same(number, kind, "incarnations", len(step.incarnations), operations)
    check_queues(step.queues)
    return operations


def _check_purges(number: int, step: wire.Purges, _: object) -> int:
    operations = _bounded(len(step.queues))
    if step.positions:
        _same(number, "purges", "positions", len(step.positions), operations)
    check_queues(step.queues)
    return operations


def _check_imports(number: int, step: wire.Imports, _: object) -> int:
    operations = _bounded(len(step.queues) + len(step.keys))
    _same(number, "imports", "key_counts", len(step.key_counts), len(step.queues))
    _same(number, "imports", "keys", len(step.keys), sum(step.key_counts))
    if step.starts:
        _same(number, "imports", "starts", len(step.starts), len(step.keys))
    check_queues(step.queues)
    _check_bindable(step.keys)
    return operations


def _check_bindable(keys: Iterable[bytes]) -> None:
    for key in keys:
        if not 0 < len(key) <= NAME_BYTES_MAX or key[0] == _AT:
            check_bindable_key(key)


def _same(number: int, kind: str, column: str, found: int, expected: int) -> None:
    if found != expected:
        raise Malformed(f"step {number} ({kind}) has {found} {column}; it needs {expected}", subject=column)


_CHECKS: dict[str, Callable[[int, Any, list[tuple[int, int]]], int]] = {
    "binds": _check_binds,
    "unbinds": _check_unbinds,
    "publishes": _check_publishes,
    "declares": _check_declares,
    "drops": _check_drops,
    "purges": _check_purges,
    "imports": _check_imports,
}
"""The check for each kind of step, by its field: it adds what the chunks measure, and returns the operations."""
