"""Makes the copy of a message for its queue's dead-letter key: the body, its headers, and why and where from.

shoal-reason       nack, timeout (not acked in time) or left (its session ended, or detached the queue)
shoal-key          the key that it was published to
shoal-offset       its offset there, in decimal digits
shoal-queue        the queue that could not do it
shoal-deliveries   how often it was delivered to that queue, in decimal digits
shoal-hops         how many dead-letter keys it has come to, with this one, in decimal digits
shoal-origin-key, shoal-origin-offset   where it was before it came to any dead-letter key

A message of many queues has a copy for each queue that could not do it, and so has each copy, at the next dead-letter
key: the number grows with each key. So copies go DEAD_LETTER_HOPS_MAX keys far, and to no key where the message was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from shoal_contract.limits import CHUNK_BYTES_MAX, CHUNK_HEADERS_MAX
from shoal_contract.wire.common_pb2 import Chunk, Headers
from shoal_slice_node.core.apply.records import Reason
from shoal_slice_node.core.limits import DEAD_LETTER_HOPS_MAX

_REASONS: Final[dict[int, bytes]] = {reason: reason.name.lower().encode() for reason in Reason}
_KEY: Final = "shoal-key"
_QUEUE: Final = "shoal-queue"
_HOPS: Final = "shoal-hops"
_ORIGIN_KEY: Final = "shoal-origin-key"
_ORIGIN_OFFSET: Final = "shoal-origin-offset"


class Death(NamedTuple):
    """Says why a message is not delivered again, what it was, and to which key its copy goes."""

    dead_letter: bytes
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
    already, or was in this one before. The message's own headers go with it, unless they and these are more than a
    chunk may hold."""
    own: Mapping[str, bytes] = chunk.headers[index].fields if chunk.headers else {}
    is_copy = all(name in own for name in (_KEY, _QUEUE, _ORIGIN_KEY, _ORIGIN_OFFSET))  # Else a publisher made it up.
    hops = own[_HOPS] if is_copy and _HOPS in own else b""
    number = 1 + (int(hops) if len(hops) <= 3 and hops.isdigit() else 0)
    offset = b"%d" % death.offset
    origin = (own[_ORIGIN_KEY], own[_ORIGIN_OFFSET]) if is_copy else (death.key, offset)
    if number > DEAD_LETTER_HOPS_MAX or death.dead_letter in (death.key, origin[0]):
        return None
    ours = {
        "shoal-reason": _REASONS.get(death.reason, b"unknown"),
        _KEY: death.key,
        "shoal-offset": offset,
        _QUEUE: death.queue,
        "shoal-deliveries": b"%d" % death.times,
        _HOPS: b"%d" % number,
        _ORIGIN_KEY: origin[0],
        _ORIGIN_OFFSET: origin[1],
    }
    both = {**own, **ours}
    body = chunk.bodies[index]
    data = _encode(body, both) if len(both) <= CHUNK_HEADERS_MAX else b""
    return data if data and len(data) <= CHUNK_BYTES_MAX else _encode(body, ours)


def _encode(body: bytes, fields: Mapping[str, bytes]) -> bytes:
    """Returns the chunk, the same bytes on every node."""
    return Chunk(bodies=[body], headers=[Headers(fields=fields)]).SerializeToString(deterministic=True)
