"""Defines what a session is told of a part that one of its queues has here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shoal_slice_node.core.rows.queue_row import life_of

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment


class NewPart(NamedTuple):
    """Says of a queue's part its ack timeout, in milliseconds (0: none), and its life."""

    ack_timeout_ms: int
    life: int


def part_of(attachment: Attachment) -> NewPart:
    """Returns what a session is told of the part that it has attached."""
    return NewPart(attachment.feed.ack_timeout_ms, life_of(attachment.feed.queue_id))
