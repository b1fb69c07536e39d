"""Makes the copies that a fake slice sends to dead-letter keys, as docs/concepts.md says."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.testing.limits import HOPS_MAX
from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.errors import TooLarge


def copy_of(chunk: bytes, index: int, why: Mapping[str, bytes]) -> bytes | None:
    """Returns the copy of a message as a chunk; None if the message has come to too many dead-letter keys already.
    `index`: its place in its chunk. `why`: shoal-reason, shoal-key and so on, without shoal-hops."""
    parsed = parse_chunk(chunk)
    own = dict(parsed.headers[index].fields) if parsed.headers else {}
    hops = 1 + int(own.get("shoal-hops", b"0"))
    if hops > HOPS_MAX:
        return None
    ours = {**why, "shoal-hops": b"%d" % hops}
    try:
        return encode_chunk([parsed.bodies[index]], [{**own, **ours}])
    except TooLarge:
        return encode_chunk([parsed.bodies[index]], [ours])
