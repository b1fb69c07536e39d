"""Publishes under an idempotency key: whatever process repeats the call, the messages are stored once.

A session knows its own repeats by its producer and numbers. A caller that starts anew, as an HTTP client does with each
request, has none of both. So the producer is made from what is published, and each has one publish: a slice that knows
the producer gives its first answer again. Not here: publishes of sessions (publishing.py, core/publish_requests.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from shoal.core.publish_requests import PublishTerms
from shoal.map_watch import MapWatch
from shoal.messages import Receipt
from shoal.slice_calls import SliceCalls
from shoal.transport.methods import PUBLISH
from shoal_contract.limits import PRODUCER_BYTES
from shoal_contract.names import Name
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk

SEQUENCE: Final = 1
"""The number of the only publish that such a producer has."""


class RepeatablePublishes:
    """Publishes chunks by unary calls, again until the deadline where a call failed on the way."""

    def __init__(self, map_watch: MapWatch, calls: SliceCalls) -> None:
        self._map = map_watch
        self._calls = calls

    async def publish(
        self, name: Name, key: bytes, idempotency_key: bytes, chunk: Chunk, terms: PublishTerms, deadline: float
    ) -> Receipt:
        """Publishes a chunk to a key. `name`: the key, or the queue, as the caller gave it. `deadline`: event loop
        time. Raises what the slice answered first, also for a repeat; DeadlineExceeded: outcome unknown."""
        request = wire.PublishRequest(
            key=key,
            chunk=chunk,
            mandatory=terms.mandatory,
            producer=producer_of(key, idempotency_key, chunk),
            sequence=SEQUENCE,
            ttl_ms=terms.ttl_ms,
            not_before_ms=terms.not_before_ms,
        )
        answer = await self._calls.ask_slice(lambda: self._map.current.owner_of(key), PUBLISH, request, deadline)
        return Receipt(
            name, answer.offset, answer.queues, answer.consumed, len(chunk.bodies), bool(terms.not_before_ms)
        )


def producer_of(key: bytes, idempotency_key: bytes, chunk: Chunk) -> bytes:
    """Returns the producer id (16 bytes) of a publish: the first bytes of a SHA-256 of the key, the idempotency key,
    and the messages, each part behind its length; headers in the order of their names. Other messages under the same
    idempotency key have another producer, so none is taken for a repeat of what it is not."""
    parts: list[Sequence[bytes]] = [(key, idempotency_key), chunk.bodies]
    for headers in chunk.headers:
        parts.append([part for name in sorted(headers.fields) for part in (name.encode(), headers.fields[name])])
    digest = sha256()
    for some in parts:
        digest.update(b"%d," % len(some))
        for part in some:
            digest.update(b"%d:" % len(part))
            digest.update(part)
    return digest.digest()[:PRODUCER_BYTES]
