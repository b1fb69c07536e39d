"""Makes the copy of a message for its queue's dead-letter key: the body, its headers, and why and where from.

shoal-reason       nack, timeout (not acked in time) or left (its session ended, or detached the queue)
shoal-key          the key that it was published to
shoal-offset       its offset there, in decimal digits
shoal-queue        the queue that could not do it
shoal-deliveries   how often it was delivered to that queue, in decimal digits
shoal-hops         how many dead-letter keys it has come to, with this one, in decimal digits
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from shoal_contract.limits import CHUNK_BYTES_MAX, CHUNK_HEADERS_MAX
from shoal_contract.wire.common_pb2 import Chunk, Headers
from shoal_slice_node.core.apply.records import Reason
from shoal_slice_node.core.limits import DEAD_LETTER_HOPS_MAX

_REASONS: Final[dict[int, bytes]] = {reason: reason.name.lower().encode() for reason in Reason}
HOPS: Final = "shoal-hops"


class Death(NamedTuple):
    """Says why a message is not delivered again, and what it was."""

    queue: bytes
    key: bytes
    offset: int
    times: int
    reason: int


def takes_copies(dead_letter: bytes, key: bytes) -> bool:
    """Returns whether copies of a key's messages go to this dead-letter key. A message that comes to the queue by its
    dead-letter key is dropped: copies of it would go round for ever."""
    return bool(dead_letter) and dead_letter != key


def copy_of(chunk: Chunk, index: int, death: Death) -> bytes | None:
    """Returns the copy, a serialized chunk of one message; None if it has come to DEAD_LETTER_HOPS_MAX dead-letter keys
    already. The message's own headers go with it, unless they and these are more than a chunk may hold."""
    own: Mapping[str, bytes] = chunk.headers[index].fields if chunk.headers else {}
    is_copy = "shoal-queue" in own and "shoal-key" in own  # Else a publisher that speaks gRPC itself made it up.
    hops = own.get(HOPS, b"") if is_copy else b""
    number = 1 + (int(hops) if len(hops) <= 3 and hops.isdigit() else 0)
    if number > DEAD_LETTER_HOPS_MAX:
        return None
    ours = {
        "shoal-reason": _REASONS.get(death.reason, b"unknown"),
        "shoal-key": death.key,
        "shoal-offset": b"%d" % death.offset,
        "shoal-queue": death.queue,
        "shoal-deliveries": b"%d" % death.times,
        HOPS: b"%d" % number,
    }
    both = {**own, **ours}
    body = chunk.bodies[index]
    data = _encode(body, both) if len(both) <= CHUNK_HEADERS_MAX else b""
    return data if data and len(data) <= CHUNK_BYTES_MAX else _encode(body, ours)


def _encode(body: bytes, fields: Mapping[str, bytes]) -> bytes:
    """Returns the chunk, the same bytes on every node."""
    return Chunk(bodies=[body], headers=[Headers(fields=fields)]).SerializeToString(deterministic=True)
