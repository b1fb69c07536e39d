"""Merges descriptions of a queue's parts into one of the queue."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core.known_queues import same_life
from shoal.core.pages import readable
from shoal.messages import BindingDescription, FarewellDescription, KeyDescription, QueueDescription
from shoal_contract.names import Name, text
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire


def merge_descriptions(
    name: Name, parts: Sequence[wire.QueueDescription], home: wire.QueueDescription
) -> QueueDescription:
    """Returns one description of the queue. `parts`: one of each slice, that of the `home` included, which says whether
    the queue exists and in which life."""
    present = living_parts(parts, home)
    kept = home.farewell
    farewell = FarewellDescription(readable(kept.key), kept.after_s, kept.due_ms) if home.HasField("farewell") else None
    return QueueDescription(
        queue=name,
        exists=home.exists,
        options=QueueOptions.of_wire(home.options),
        binding_count=sum(part.binding_count for part in present),
        messages=sum(part.messages for part in present),
        body_bytes=sum(part.body_bytes for part in present),
        oldest_ms=min((part.oldest_ms for part in present if part.oldest_ms), default=0),
        attached_sessions=max((part.attached_sessions for part in present), default=0),
        consumed=any(map(consumed, present)),
        unacked=sum(part.unacked for part in present),
        bindings=tuple(_binding(binding) for part in present for binding in part.bindings),
        farewell=farewell,
    )


def living_parts(parts: Sequence[wire.QueueDescription], home: wire.QueueDescription) -> list[wire.QueueDescription]:
    """Returns the parts that exist and are of the life that the home knows; a drop left the others behind."""
    if not home.exists:
        return []
    return [part for part in parts if part.exists and same_life(part.incarnation, home.incarnation)]


def consumed(part: wire.QueueDescription) -> bool:
    """Returns whether a part is consumed; a slice of an older version tells only of attached sessions."""
    return part.consumed or part.attached_sessions > 0


def _binding(binding: wire.BindingDescription) -> BindingDescription:
    key, start, cursor, end = text(binding.key), binding.start, binding.cursor, binding.end
    return BindingDescription(key, start, cursor, end, binding.messages, binding.unacked, binding.full)


def key_description(name: Name, key: wire.KeyDescription) -> KeyDescription:
    """Returns what applications get for a slice's description of a key."""
    options = KeyOptions.of_wire(key.options)
    return KeyDescription(name, key.exists, key.head, key.low, key.queues, key.body_bytes, options)
