"""Descriptions of a queue's parts, merged into one of the queue. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.messages import BindingDescription, KeyDescription, QueueDescription
from shoal_contract.names import Name, text
from shoal_contract.wire import slice_pb2 as wire


def merge_descriptions(name: Name, parts: Sequence[wire.QueueDescription]) -> QueueDescription:
    """One for each slice; parts that do not exist count nothing."""
    present = [part for part in parts if part.exists]
    return QueueDescription(
        queue=name,
        exists=bool(present),
        expires_after_s=present[0].options.expires_after_s if present else 0,
        binding_count=sum(part.binding_count for part in present),
        messages=sum(part.messages for part in present),
        body_bytes=sum(part.body_bytes for part in present),
        oldest_ms=min((part.oldest_ms for part in present if part.oldest_ms), default=0),
        attached_sessions=max((part.attached_sessions for part in present), default=0),
        bindings=tuple(_binding(binding) for part in present for binding in part.bindings),
    )


def _binding(binding: wire.BindingDescription) -> BindingDescription:
    return BindingDescription(text(binding.key), binding.start, binding.cursor, binding.end, binding.messages)


def key_description(name: Name, key: wire.KeyDescription) -> KeyDescription:
    return KeyDescription(name, key.exists, key.head, key.low, key.queues, key.body_bytes)
