"""Makes the copies that a fake slice sends to dead-letter keys, as docs/concepts.md says."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.testing.limits import HOPS_MAX
from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.errors import TooLarge

_ORIGIN = ("shoal-origin-key", "shoal-origin-offset")


def copy_of(chunk: bytes, index: int, dead_letter: bytes, why: Mapping[str, bytes]) -> bytes | None:
    """Returns the copy of a message as a chunk; None if the message has come to too many dead-letter keys already, or
    was in this one. `index`: its place in its chunk. `why`: shoal-reason, shoal-key and so on, without shoal-hops."""
    parsed = parse_chunk(chunk)
    own = dict(parsed.headers[index].fields) if parsed.headers else {}
    is_copy = all(name in own for name in ("shoal-key", "shoal-queue", *_ORIGIN))
    hops = 1 + (int(own["shoal-hops"]) if is_copy else 0)
    origin = [own[name] for name in _ORIGIN] if is_copy else [why["shoal-key"], why["shoal-offset"]]
    if hops > HOPS_MAX or dead_letter in (why["shoal-key"], origin[0]):
        return None
    why = {**why, **dict(zip(_ORIGIN, origin, strict=True))}
    ours = {**why, "shoal-hops": b"%d" % hops}
    try:
        return encode_chunk([parsed.bodies[index]], [{**own, **ours}])
    except TooLarge:
        return encode_chunk([parsed.bodies[index]], [ours])
