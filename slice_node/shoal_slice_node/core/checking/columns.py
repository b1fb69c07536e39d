"""Checks the columns of a step: how many items, whether columns fit each other, names.

Belongs here: checks that several verbs share. Not here: what a verb needs besides (core/verbs).
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal_contract.errors import Malformed, TooLarge
from shoal_contract.limits import FRAME_OPERATIONS_MAX, NAME_BYTES_MAX
from shoal_contract.names import check_bindable_key, check_key
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.checking.session_frames import check_queue_names

_AT = ord("@")


def too_many(operations: int) -> TooLarge:
    """Returns the error for a frame with too many operations."""
    return TooLarge(
        f"frame has {operations} operations or more; the limit is {FRAME_OPERATIONS_MAX}",
        subject="operations per frame",
        limit=FRAME_OPERATIONS_MAX,
        value=operations,
    )


def bounded(operations: int) -> int:
    """Returns `operations`. Raises TooLarge if they are too many, before names are looked at."""
    if operations > FRAME_OPERATIONS_MAX:
        raise too_many(operations)
    return operations


def same(number: int, kind: str, column: str, found: int, expected: int) -> None:
    """Raises Malformed if a column of the step `number` has another length than it needs."""
    if found != expected:
        raise Malformed(f"step {number} ({kind}) has {found} {column}; it needs {expected}", subject=column)


def check_memberships(number: int, kind: str, step: wire.Binds | wire.Unbinds) -> int:
    """Checks queues with their keys. Returns the operations. Raises Malformed, TooLarge, InvalidName."""
    operations = bounded(max(len(step.keys), len(step.queues)))
    if step.key_counts:
        same(number, kind, "key_counts", len(step.key_counts), len(step.queues))
        same(number, kind, "keys", len(step.keys), sum(step.key_counts))
    else:
        same(number, kind, "keys", len(step.keys), len(step.queues))
    check_queue_names(step.queues)
    check_bindable(step.keys)
    return operations


def check_named(number: int, kind: str, step: wire.Declares | wire.Drops) -> int:
    """Checks queues, each with its incarnation if given. Returns and raises as `check_memberships`."""
    operations = bounded(len(step.queues))
    if step.incarnations:
        same(number, kind, "incarnations", len(step.incarnations), operations)
    check_queue_names(step.queues)
    return operations


def check_bindable(keys: Iterable[bytes]) -> None:
    """Raises InvalidName for a key that queues may not be bound to."""
    for key in keys:
        if not 0 < len(key) <= NAME_BYTES_MAX or key[0] == _AT:
            check_bindable_key(key)


def check_published(keys: Iterable[bytes]) -> None:
    """Raises InvalidName for a key that may not be published to."""
    for key in keys:
        if not 0 < len(key) <= NAME_BYTES_MAX or key[0] == _AT:
            check_key(key)
