"""Passes over messages that a binding still had to get and that are gone, and tells one of its consumers of the gap.

A key's low may rise above cursors, and nothing tells the bindings. A stream that lacks something is lagging, so it
meets the gap when its log is read: no work is done for bindings that had passed. A gap is out until the parcel that
tells of it has left, then it is done: one that waits for a session which ends is told to another. Not here: why a key
gave messages up (apply/key_options).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.leases import Lease
from shoal_slice_node.core.dispatch.parcels import parcel_bytes
from shoal_slice_node.core.dispatch.recent_chunks import ChunkPart
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import GAP
from shoal_slice_node.core.limits import GAPS_AT_ONCE_MAX

LeaseOf = Callable[[Attachment], Lease | None]
"""Returns the lease under which the attachment gets the next part; None: it has it until its session ends."""

Tell = Callable[[Stream, Attachment, ChunkPart], None]
"""Tells an attachment of a gap, which has the form of a part (`_gap`)."""


class Passed(Enum):
    """Says what became of messages that were to be passed over."""

    NO_ROOM = 0
    """A consumer is to be told, and none has room: all is as before."""
    OUT = 1
    """All of them are out, or done."""
    OVER = 2
    """A consumer is told of some."""


DROPPED: Final[int] = wire.GAP_REASON_DROPPED
EXPIRED: Final[int] = wire.GAP_REASON_EXPIRED


def pass_over(
    registry: Registry,
    stream: Stream,
    first: int,
    to: int,
    why: int,
    pick: Callable[[int], Attachment | None],
    tell: Tell,
    lease_of: LeaseOf,
) -> Passed:
    """Passes over first <= o < to. What is out stays out: consumers have it, or it still comes; if it comes back, it is
    passed over then. Of all others, one consumer is told."""
    lost = stream.undelivered(first, to)
    attachment = pick(parcel_bytes(b"", stream.key)) if lost else None
    if lost and attachment is None:
        return Passed.NO_ROOM
    registry.returns.end_rests(stream, first, to)
    stream.forget_returned(first, to)
    if stream.next < to:
        stream.give_on_from(to)
    if attachment is not None:
        lease = lease_of(attachment)
        for low, high in lost:
            stream.give(low, high, 0, attachment, GAP, lease)
            if lease is not None:
                lease.take(stream, high - low)
        if len(lost) > GAPS_AT_ONCE_MAX:
            lost[GAPS_AT_ONCE_MAX - 1 :] = [(lost[GAPS_AT_ONCE_MAX - 1][0], to)]
        for low, high in lost:
            tell(stream, attachment, _gap(stream.key, low, high, why))
    return Passed.OVER if lost else Passed.OUT


def _gap(key: bytes, first: int, to: int, why: int) -> ChunkPart:
    """Returns a gap in the form of a part, without a chunk."""
    return ChunkPart(key, first, first, to, 0, 0, b"", 0, gap=why)
