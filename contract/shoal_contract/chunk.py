"""Makes and checks chunks: the messages that one publisher sends to one key at once (`shoal.v1.Chunk`). They are stored
and delivered as they came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal_contract.decode_error import DecodeError
from shoal_contract.errors import Malformed, check_at_most
from shoal_contract.limits import (
    BODY_BYTES_MAX,
    CHUNK_BYTES_MAX,
    CHUNK_HEADERS_MAX,
    CHUNK_MESSAGES_MAX,
    CHUNK_PARSED_AT_ONCE_BYTES_MAX,
    CHUNK_SUSPECT_TAGS_MAX,
)
from shoal_contract.wire.common_pb2 import Chunk, Headers
from shoal_contract.wire_count import Shape, count_fields

_SHAPE: Shape = {2: {1: {}}}
_BODY_TAG = 0x0A
"""Begins a body: field 1, which has a length (varint) and then so many bytes."""
_FIELDS_MAX = 2 * CHUNK_MESSAGES_MAX + 3 * CHUNK_HEADERS_MAX
"""The number of fields on the wire: bodies, headers, and each header field with its name and value."""


def encode_chunk(bodies: Sequence[bytes], headers: Sequence[Mapping[str, bytes] | None] = ()) -> bytes:
    """Returns a serialized chunk. `headers`: empty, or one (or None) for each body. Raises TooLarge, Malformed."""
    chunk = Chunk(bodies=bodies)
    if any(headers):
        chunk.headers.extend(Headers(fields=dict(fields or {})) for fields in headers)
    data = chunk.SerializeToString()
    check_chunk(chunk, len(data))
    return data


def parse_chunk(data: bytes) -> Chunk:
    """Returns the chunk. Raises Malformed if `data` is not a chunk, TooLarge if it breaks a limit."""
    chunk = _read(data)
    check_chunk(chunk, len(data))
    return chunk


def read_stored_chunk(data: bytes) -> Chunk:
    """Returns the message of a chunk that was checked when it came. It checks no limits, and takes a tenth of the
    time."""
    return Chunk.FromString(data)


def cut_chunk(chunk: Chunk, begin: int, end: int) -> bytes:
    """Returns a serialized chunk of the messages begin <= index < end of another. O(the messages it holds)."""
    return Chunk(bodies=chunk.bodies[begin:end], headers=chunk.headers[begin:end]).SerializeToString()


def measure_chunk(data: bytes) -> tuple[int, int]:
    """Returns (messages, body bytes) of a serialized chunk. It replaces `parse_chunk` where the chunk is only stored,
    and raises the same errors."""
    size = len(data)
    if size > 2 and data[0] == _BODY_TAG:
        # One body up to 16 KiB and nothing else is told from its length, without parsing it.
        low, high = data[1:3]
        if low < 0x80:
            if size == 2 + low:
                return 1, low
        elif high < 0x80 and size == 3 + (low & 0x7F) + (high << 7):
            return 1, size - 3
    chunk = _read(data)
    bodies = chunk.bodies
    if len(bodies) != 1 or chunk.headers or size > BODY_BYTES_MAX:
        check_chunk(chunk, size)
        return len(bodies), sum(map(len, bodies))
    return 1, len(bodies[0])


def _read(data: bytes) -> Chunk:
    """Returns the message, in bounded time for any bytes."""
    size = len(data)
    if size > CHUNK_PARSED_AT_ONCE_BYTES_MAX:
        check_at_most("chunk bytes", size, CHUNK_BYTES_MAX)
        if data.count(b"\n") + data.count(b"\x12") > CHUNK_SUSPECT_TAGS_MAX:
            check_at_most("chunk fields", count_fields(data, _SHAPE, _FIELDS_MAX), _FIELDS_MAX)
    try:
        return Chunk.FromString(data)
    except DecodeError:
        raise Malformed(f"chunk of {size} bytes cannot be read", subject="chunk") from None


def check_chunk(chunk: Chunk, chunk_bytes: int) -> None:
    """Raises TooLarge or Malformed for a bad chunk. The error names the limit."""
    count = len(chunk.bodies)
    if count == 0:
        raise Malformed("chunk has no messages; it needs at least 1", subject="chunk")
    if chunk.headers and len(chunk.headers) != count:
        raise Malformed(f"chunk has {count} messages but {len(chunk.headers)} headers", subject="chunk")
    check_at_most("chunk messages", count, CHUNK_MESSAGES_MAX)
    check_at_most("chunk bytes", chunk_bytes, CHUNK_BYTES_MAX)
    if chunk.headers:
        check_at_most("chunk headers", sum(len(each.fields) for each in chunk.headers), CHUNK_HEADERS_MAX)
    if chunk_bytes > BODY_BYTES_MAX:
        check_at_most("body bytes", max(map(len, chunk.bodies)), BODY_BYTES_MAX)
