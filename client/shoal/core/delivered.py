"""Reads the messages of a delivery, and checks that its offsets lie in its chunk.

A range that a slice names, and that is not checked against the chunk beside it, would have the library make as many
messages as the range is long. Not here: which of the messages are handed out (repeat_rules.py).
"""

from __future__ import annotations

from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import Malformed
from shoal_contract.names import show
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk


def chunk_of(item: wire.Delivery) -> Chunk:
    """Returns the chunk of a delivery. Raises Malformed, TooLarge if it cannot be read, or does not hold the offsets
    low <= offset < to."""
    chunk = parse_chunk(item.chunk)
    first, low, to, count = item.first, item.low, item.to, len(chunk.bodies)
    if not first <= low < to <= first + count or (item.live and low):
        raise Malformed(
            f"delivery of key {show(item.key)} names offsets {low} to {to}; its chunk has {count} from {first} on",
            subject="delivery",
        )
    return chunk
