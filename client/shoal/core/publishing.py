"""Makes a publish's request from its arguments, with all checks that need no slice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.core.publish_requests import PublishChunk, PublishSingles, PublishTerms, headers_bytes
from shoal.core.waiters import Waiter
from shoal.limits import CHUNK_FRAMING_BYTES
from shoal.messages import Receipt
from shoal_contract.arguments import Body, check_bodies, check_body, check_headers, check_headers_of_each
from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import TooLarge, check_at_most
from shoal_contract.limits import BODY_BYTES_MAX, CHUNK_BYTES_MAX, CHUNK_MESSAGES_MAX, FAREWELL_BYTES_MAX
from shoal_contract.names import Name
from shoal_contract.wire.common_pb2 import Chunk


def single(
    name: Name,
    key: bytes,
    body: Body,
    headers: Mapping[str, Body] | None,
    terms: PublishTerms,
    deadline: float,
    waiter: Waiter[Receipt],
) -> PublishSingles:
    """Returns the request of one message. Raises TypeError, TooLarge, Malformed."""
    data = body if type(body) is bytes and len(body) <= BODY_BYTES_MAX else check_body(body)
    size_bytes = len(data)
    fields = None
    if headers is not None and (fields := check_headers(headers)):
        size_bytes += headers_bytes(fields)
        if size_bytes + CHUNK_FRAMING_BYTES > CHUNK_BYTES_MAX:
            what = f"body and headers for key {name!r}: {size_bytes} bytes; the limit is {CHUNK_BYTES_MAX}"
            raise TooLarge(what, subject="chunk bytes", limit=CHUNK_BYTES_MAX, value=size_bytes)
    return PublishSingles(name, key, data, fields, size_bytes, terms, deadline, waiter)


def chunk_of(bodies: Iterable[Body], headers: Iterable[Mapping[str, Body] | None]) -> Chunk:
    """Returns a chunk as a message. Raises TypeError, TooLarge, Malformed."""
    checked = check_bodies(bodies)
    return Chunk.FromString(encode_chunk(checked, check_headers_of_each(headers, len(checked))))


def farewell_chunk(body: Body, headers: Mapping[str, Body] | None) -> bytes:
    """Returns the chunk of a farewell. Raises TypeError, TooLarge, Malformed."""
    chunk = encode_chunk([check_body(body)], [check_headers(headers)])
    check_at_most("body and headers of a farewell, in bytes", len(chunk), FAREWELL_BYTES_MAX)
    return chunk


def batch(
    name: Name,
    key: bytes,
    bodies: Iterable[Body],
    headers: Iterable[Mapping[str, Body] | None],
    terms: PublishTerms,
    deadline: float,
    waiter: Waiter[Receipt],
) -> PublishChunk:
    """Returns the request of one chunk. Raises TypeError, TooLarge, Malformed."""
    chunk = None
    if type(bodies) is list and len(bodies) <= CHUNK_MESSAGES_MAX and _without_headers(headers, len(bodies)):
        try:
            # The usual case. Protobuf refuses a list of anything but bytes; to check this first would cost more.
            if sum(map(len, bodies)) <= CHUNK_BYTES_MAX:
                chunk, count = encode_chunk(bodies), len(bodies)
        except TypeError:
            pass
    if chunk is None:
        checked = check_bodies(bodies)
        chunk, count = encode_chunk(checked, check_headers_of_each(headers, len(checked))), len(checked)
    return PublishChunk(name, key, chunk, count, terms, deadline, waiter)


def _without_headers(headers: object, bodies: int) -> bool:
    if headers == ():
        return True
    return type(headers) is list and len(headers) == bodies == headers.count(None)
