"""Makes names of queues and keys: 36 characters that look like UUIDs and are scattered like them. They can be read
back.

    queue  SSSSSSSS-SSSS-4SSS-8000-RRRRRRRRRRRR      S: resident number, scattered; R: the same, plain
    key    SSSSSSSS-GGGG-5SSS-8000-RRRRRRRRRRRR      G: generation; R: group number

A group that ended never comes back: its number's next generation is another key.
"""

from __future__ import annotations

_SPREAD = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
GENERATIONS = 1 << 16


def queue_name(resident: int) -> bytes:
    digits = b"%016x" % (resident * _SPREAD & _WORD)
    return b"%b-%b-4%b-8000-%012x" % (digits[:8], digits[8:12], digits[12:15], resident)


def key_name(group: int, generation: int) -> bytes:
    digits = b"%016x" % (group * _SPREAD & _WORD)
    return b"%b-%04x-5%b-8000-%012x" % (digits[:8], generation % GENERATIONS, digits[12:15], group)


def resident_of(queue: bytes) -> int:
    """Returns the resident of a name made by `queue_name`."""
    return int(queue[24:], 16)


def group_of(key: bytes) -> tuple[int, int]:
    """Returns (group, generation modulo GENERATIONS) of a name made by `key_name`."""
    return int(key[24:], 16), int(key[9:13], 16)
