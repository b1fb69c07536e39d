"""From a publish's arguments to its request: all checks that need no slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.limits import CHUNK_FRAMING_BYTES
from shoal.requests import PublishChunk, PublishSingles, headers_bytes
from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import TooLarge
from shoal_contract.limits import BODY_BYTES_MAX, CHUNK_BYTES_MAX
from shoal_contract.names import Name


def single(
    name: Name, key: bytes, body: bytes, headers: Mapping[str, bytes] | None, mandatory: bool, deadline: float
) -> PublishSingles:
    """One message. Raises TooLarge, TypeError."""
    if not isinstance(body, bytes):
        raise TypeError(f"body must be bytes, not {type(body).__name__}")
    size_bytes = len(body)
    if size_bytes > BODY_BYTES_MAX:
        what = f"body for key {name!r}: {size_bytes} bytes; the limit is {BODY_BYTES_MAX}"
        raise TooLarge(what, subject="body bytes", limit=BODY_BYTES_MAX, value=size_bytes)
    if headers:
        size_bytes += headers_bytes(headers)
        if size_bytes + CHUNK_FRAMING_BYTES > CHUNK_BYTES_MAX:
            what = f"body and headers for key {name!r}: {size_bytes} bytes; the limit is {CHUNK_BYTES_MAX}"
            raise TooLarge(what, subject="chunk bytes", limit=CHUNK_BYTES_MAX, value=size_bytes)
    return PublishSingles(name, key, body, headers, size_bytes, mandatory, deadline)


def batch(
    name: Name,
    key: bytes,
    bodies: Sequence[bytes],
    headers: Sequence[Mapping[str, bytes] | None],
    mandatory: bool,
    deadline: float,
) -> PublishChunk:
    """One chunk. Raises TooLarge, Malformed, TypeError."""
    chunk = encode_chunk(bodies, headers)
    return PublishChunk(name, key, chunk, len(bodies), mandatory, deadline)
