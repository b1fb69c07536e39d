"""Cuts what an ack, a nack or a gap says of one binding into pieces, and says what a look at one costs.

A binding has up to thousands of stretches, and one ack may name all of them. Not here: what is done with a piece
(acks_in_flight), and the steps that pieces make up (node/settling, pump).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from shoal_slice_node.core.limits import DONE_RANGES_COPIED_PER_COST, DONE_RANGES_PER_COST, STRETCHES_PER_PIECE

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment
    from shoal_slice_node.core.dispatch.streams import Stream


PieceOfGap: TypeAlias = "tuple[Attachment, bytes, int, int]"
"""What one attachment was told of: a key id, and offsets first <= o < to."""


def pieces(attachment: Attachment, key_id: bytes, first: int, to: int) -> Iterator[tuple[int, int]]:
    """Yields the offsets first <= o < to of a key in pieces, each with at most STRETCHES_PER_PIECE stretches that are
    out: where it begins and ends. Each is looked for once the one before is done with. There is at least one."""
    while True:
        stream = attachment.feed.streams.get(key_id)
        end = to if stream is None else stream.span_out(first, to, STRETCHES_PER_PIECE)
        yield first, end
        if end >= to:
            return
        first = end


def pieces_of_all(attachments: Iterable[Attachment], gaps: Iterable[tuple[bytes, int, int]]) -> Iterator[PieceOfGap]:
    """Yields the pieces of gaps (key id, first offset, end offset) for several attachments, one after the other."""
    for attachment in attachments:
        for key_id, first, to in gaps:
            for low, high in pieces(attachment, key_id, first, to):
                yield attachment, key_id, low, high


def cost_of_look(stream: Stream, first: int, to: int) -> int:
    """Returns what a look at all that is out of first <= o < to costs, in acks. Lists are long where much is out."""
    listed = len(stream.out) + len(stream.returned or ())
    if listed < DONE_RANGES_PER_COST:
        return 1
    return 1 + stream.out_within(first, to) // DONE_RANGES_PER_COST + listed // DONE_RANGES_COPIED_PER_COST
