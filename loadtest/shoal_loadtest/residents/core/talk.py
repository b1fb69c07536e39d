"""The checker's second half: compares the messages that were sent with those that arrive. Pure.

Every message carries sender, key, number and time. A message that has a receipt, or arrived once, is remembered by
(key, offset) until it is audited: then every member whose window holds the offset must have it. Until then, the offset
must always be the same message. That time is bounded, so the message rate bounds the memory.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from shoal_loadtest.residents.core.windows import CHANGED, Faults
from shoal_loadtest.residents.limits import BODY_BYTES

_BODY = struct.Struct("<QQIQd")
_MAGIC = 0x6C616F6873
_NUMBER = (1 << 48) - 1


class Said(NamedTuple):
    """Holds a message's own data. `sender`, `group`, `generation`: numbers of names; `number`: by group, 1, 2, 3 ..."""

    sender: int
    group: int
    generation: int
    number: int
    due_s: float


class Heard(NamedTuple):
    """Describes a message to audit."""

    at_s: float
    key: bytes
    offset: int


def body_of(said: Said) -> bytes:
    """Returns BODY_BYTES bytes, little-endian: magic u64 | sender u64 | group u32 | number u48, generation u16 | due
    f64 | zeros."""
    head = _BODY.pack(_MAGIC, said.sender, said.group, said.generation << 48 | said.number, said.due_s)
    return head + bytes(BODY_BYTES - len(head))


def read_body(body: bytes) -> Said | None:
    """Returns the data of a body; None if the body is not one of a test message."""
    if len(body) != BODY_BYTES:
        return None
    magic, sender, group, mixed, due_s = _BODY.unpack_from(body)
    if magic != _MAGIC:
        return None
    return Said(sender, group, mixed >> 48, mixed & _NUMBER, due_s)


class Talk:
    """Keeps recent messages. Numbers grow by group, over all its generations."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._numbers: dict[int, int] = {}
        """The last number, by group with any message."""
        self._words: dict[tuple[bytes, int], tuple[int, int]] = {}
        """(key, offset) -> (sender, number), as long as it is in `_lately`."""
        self._lately: deque[Heard] = deque()

    def __len__(self) -> int:
        return len(self._lately)

    def next_number(self, group: int) -> int:
        number = self._numbers[group] = self._numbers.get(group, 0) + 1
        return number

    def noted(self, key: bytes, offset: int, said: Said, now_s: float) -> None:
        """Notes that this message has this offset, as a receipt says or a delivery shows. Adds a fault if the offset
        had another message before."""
        known = self._words.get((key, offset))
        if known is None:
            self._words[key, offset] = (said.sender, said.number)
            self._lately.append(Heard(now_s, key, offset))
        elif known != (said.sender, said.number):
            what = f"offset {offset} is message {said.number} of resident {said.sender}"
            self._faults.add(CHANGED, f"key {key.decode()}", f"{what}; it was {known[1]} of {known[0]}")

    def audits(self, before_s: float) -> Iterator[Heard]:
        """Yields the messages that were noted before then, oldest first, and forgets them."""
        while self._lately and self._lately[0].at_s < before_s:
            heard = self._lately.popleft()
            del self._words[heard.key, heard.offset]
            yield heard
