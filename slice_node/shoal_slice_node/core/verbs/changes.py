"""Checks changes completely before they are journaled: size, form, names, chunks, and what they will cost.

Live frames, imports, replay and tests all pass the same check. A frame that fails it is refused whole and changes
nothing. So `apply` refuses only for reasons in the tables: no such queue, not owner, conflict, ...

Belongs here: what all changes have in common. Not here: what each verb checks (its module), checks that need the tables
(core/apply).
"""

from __future__ import annotations

from typing import NamedTuple

from shoal_contract.decode_error import DecodeError
from shoal_contract.errors import Malformed
from shoal_contract.limits import FRAME_OPERATIONS_MAX, PARSED_AT_ONCE_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire_count import Shape, count_fields
from shoal_slice_node.core.checking.columns import too_many
from shoal_slice_node.core.verbs.table import VERBS
from shoal_slice_node.core.verbs.verb import Measures

UNKNOWN_STEP = "step of an unknown kind"
"""The subject of the error for such a step: a frame with one is refused; in a journal it is a reason to stop."""

_SHAPE: Shape = {1: {wire.Step.DESCRIPTOR.fields_by_name[field].number: verb.shape for field, verb in VERBS.items()}}
"""Change.steps, the verb in each, and its columns of numbers."""
_FIELDS_PER_OPERATION = 8
"""The most fields of an operation: a step, its verb, a queue, a key, the number of keys (a column, and a number in it),
and the start and value of a bind."""
_FIELDS_MAX = _FIELDS_PER_OPERATION * FRAME_OPERATIONS_MAX + 1
"""The most fields of a valid frame; one says that it is atomic."""


class Checked(NamedTuple):
    """Describes a change that passed the check. `operations`: its keys and queues, at least 1 for each step, and
    what they look at besides (Verb.looks).
    `measures`: (messages, body bytes) of each chunk it publishes, in order. `ends`: some of what it takes is not in
    `operations` (see prices); `only_ranges`: that is the done ranges of its bindings and no more. `settles`: it may
    make done ranges. `grows`: it may give queues bindings. `in_run`: a step of it may only stand in a run of
    chunks. `times`: how often it is applied: 2 for an atomic change, which is tried first; `operations` has that.
    `leader_decides`: the leader must add what it decides before the change is journaled. `live`: all of its
    steps are live publishes, which are not journaled. `frees`: all of its steps are such (Verb.frees). `by_slice`: one
    of its steps is such (Verb.by_slice)."""

    change: wire.Change
    operations: int
    measures: list[tuple[int, int]]
    ends: bool = False
    grows: bool = False
    in_run: bool = False
    times: int = 1
    leader_decides: bool = False
    live: bool = False
    frees: bool = False
    by_slice: bool = False
    only_ranges: bool = False
    settles: bool = False


def parse_change(data: bytes) -> Checked:
    """Parses and checks a change that a session or unary call may ask for. Raises Malformed, TooLarge, InvalidName."""
    checked = _check_frame(data)
    if checked.in_run:
        raise Malformed(
            "a session may not send imports: BulkService takes them, in runs of numbered chunks", subject="step"
        )
    if checked.by_slice:
        raise Malformed("a client may not send steps that only the slice itself writes: limited_binds", subject="step")
    return checked


def parse_import(data: bytes) -> Checked:
    """Parses and checks a chunk of an import: a change of one step, Imports. Raises as `parse_change` does."""
    checked = _check_frame(data)
    if len(checked.change.steps) != 1 or not checked.in_run:
        raise Malformed("a chunk of an import is a change of one step, imports", subject="change")
    return checked


def check_change(data: bytes) -> Checked:
    """Parses and checks any change that may stand in a journal. Raises Malformed, TooLarge, InvalidName. Its fields are
    not counted: the slice adds some to what passed."""
    checked = _check(data)
    if checked.live:
        raise Malformed("a live publish is never journaled", subject="live")
    return checked


def _check_frame(data: bytes) -> Checked:
    """Checks what a client sent: before it is parsed, its fields are counted if it is large."""
    if len(data) > PARSED_AT_ONCE_BYTES_MAX and (fields := count_fields(data, _SHAPE, _FIELDS_MAX)) > _FIELDS_MAX:
        raise too_many(fields // _FIELDS_PER_OPERATION)
    return _check(data)


def _check(data: bytes) -> Checked:
    try:
        change = wire.Change.FromString(data)
    except DecodeError:
        raise Malformed(f"change of {len(data)} bytes cannot be read", subject="change") from None
    if len(change.steps) > FRAME_OPERATIONS_MAX:
        raise too_many(len(change.steps))
    operations = live = looks = 0
    measures: Measures = []
    ends = grows = in_run = leader_decides = by_slice = priced = settles = False
    frees = len(change.steps) > 0
    for number, step in enumerate(change.steps):
        field = step.WhichOneof("step") or ""
        verb = VERBS.get(field)
        if verb is None:
            raise Malformed(f"step {number} is of a kind that this version does not know", subject=UNKNOWN_STEP)
        if change.atomic and not verb.atomic:
            raise Malformed(f"step {number} is {field}, which an atomic change may not have", subject=field)
        found = getattr(step, field)
        operations += max(1, verb.check(number, found, measures))
        if verb.leader_decides is not None and verb.leader_decides(found):
            leader_decides = True
        if verb.looks is not None:
            looks += verb.looks(found)
        frees, by_slice = frees and verb.frees, by_slice or verb.by_slice
        live += field == "publishes" and found.live
        priced, ends = priced or verb.price is not None, ends or verb.ranges is not None
        settles = settles or verb.settles
        grows, in_run = grows or verb.grows, in_run or verb.in_run
        if operations > FRAME_OPERATIONS_MAX:
            raise too_many(operations)
    if live and (change.atomic or live < len(change.steps)):
        raise Malformed(
            f"{live} of the change's {len(change.steps)} steps are live publishes; a change with live publishes has"
            " nothing else and is not atomic, as they are not stored",
            subject="live",
        )
    times = 2 if change.atomic else 1
    cost = times * (operations + looks)
    return Checked(
        change,
        cost,
        measures,
        ends or priced,
        grows,
        in_run,
        times,
        leader_decides,
        live > 0,
        frees,
        by_slice,
        only_ranges=ends and not priced,
        settles=settles,
    )
