"""Passes over messages that a binding still had to get and that are gone, and tells one of its consumers of the gap.

A key's low may rise above cursors, and nothing tells the bindings. A stream that lacks something is lagging, so it
meets the gap when its log is read: no work is done for bindings that had passed. What is passed over is done, as if it
were acked: the next flush says so in the tables. Not here: why a key gave messages up (apply/key_options).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.feeds import Attachment
from shoal_slice_node.core.dispatch.recent_chunks import ChunkPart
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import GAPS_AT_ONCE_MAX

Tell = Callable[[Stream, Attachment, ChunkPart], None]
"""Tells an attachment of a gap, which has the form of a part (`_gap`)."""

DROPPED: Final[int] = wire.GAP_REASON_DROPPED
EXPIRED: Final[int] = wire.GAP_REASON_EXPIRED


def pass_over(
    registry: Registry, stream: Stream, first: int, to: int, why: int, pick: Callable[[], Attachment | None], tell: Tell
) -> bool:
    """Passes over first <= o < to. Messages that are out end too; the consumer that has them knows them. Returns False,
    and nothing has changed, if a consumer is to be told and none has room."""
    lost = stream.undelivered(first, to)
    if lost:
        attachment = pick()
        if attachment is None:
            return False
        if len(lost) > GAPS_AT_ONCE_MAX:
            lost[GAPS_AT_ONCE_MAX - 1 :] = [(lost[GAPS_AT_ONCE_MAX - 1][0], to)]
        for low, high in lost:
            tell(stream, attachment, _gap(stream.key, low, high, why))
    registry.returns.acked_by_change(stream, first, to)
    for holder in stream.pass_over(first, to):
        registry.has_room_again(holder.session)
    registry.note_done(stream)
    return True


def _gap(key: bytes, first: int, to: int, why: int) -> ChunkPart:
    """Returns a gap in the form of a part, without a chunk."""
    return ChunkPart(key, first, first, to, 0, 0, b"", 0, gap=why)
