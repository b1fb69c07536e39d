"""Decides for binds of queues that are consumed whether there is room for more bindings in memory, when their record is
written.

`apply` must not ask dispatch, so the record says it: LimitedBinds stands in the place of Binds and names the queues
that are refused. A repeat of the change gets the first answer, whatever the room is by then. Each request is decided by
itself: what others gathered into the same frame goes on.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal_contract.errors import ResourceExhausted
from shoal_contract.names import show
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.limits import STREAM_BYTES
from shoal_slice_node.core.node.commit import Item


def limit_binds(registry: Registry, item: Item) -> None:
    """Writes the decisions into the item of a change that is about to be journaled, where memory of attached queues is
    full."""
    share = registry.shares.attached
    if share.used_bytes < share.limit_bytes:
        return
    assert item.checked is not None
    steps = item.checked.change.steps
    limited = {number: names for number, step in enumerate(steps) if (names := _consumed(registry, step.binds.queues))}
    if not limited:
        return
    registry.range_room.note_refused(STREAM_BYTES)
    change = wire.Change()
    change.CopyFrom(item.checked.change)
    for number, names in limited.items():
        step = change.steps[number]
        step.limited_binds.MergeFrom(wire.LimitedBinds(binds=step.binds, no_room=names))
    item.rewrite(change)


def check_imports(registry: Registry, imports: wire.Imports) -> None:
    """Raises ResourceExhausted if memory of attached queues is full, and a chunk binds queues that are consumed. It is
    refused whole: the run goes on with it later."""
    share = registry.shares.attached
    if share.used_bytes >= share.limit_bytes and (names := _consumed(registry, imports.queues)):
        registry.range_room.note_refused(STREAM_BYTES)
        raise ResourceExhausted(
            f"queue {show(names[0])} is consumed, and there is no room for more bindings of it in the memory of"
            " attached queues: go on with this chunk later",
            subject=show(names[0]),
            limit=share.limit_bytes,
            value=share.used_bytes,
        )


def _consumed(registry: Registry, names: Iterable[bytes]) -> list[bytes]:
    by_name = registry.state.tables.queue_by_name
    return [name for name in dict.fromkeys(names) if by_name.get(name) in registry.feeds]
