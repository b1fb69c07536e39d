"""Gathers nacks of messages that no program was given, each consumer with a number, in the order of frames. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from shoal.core.acks import Acked, framed


class NumberedNacks:
    """Numbers nacks. `number`: the last number; 0: there was none yet."""

    def __init__(self) -> None:
        self.number = 0
        self._entries: list[tuple[bytes, int, int, int]] = []
        """Key, first offset, the offset behind the last one, handle; the last of them has number `number`."""
        self._places: dict[tuple[bytes, int], int] = {}
        """Key and handle -> the place of their newest entry."""

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, key: bytes, first: int, end: int, handle: int) -> int:
        """Adds offsets first <= offset < end of a key, for this handle. Returns the number."""
        place = self._places.get((key, handle))
        if place is not None and self._entries[place][2] == first:
            self._entries[place] = (key, self._entries[place][1], end, handle)
            return self.number - len(self._entries) + 1 + place
        self._places[key, handle] = len(self._entries)
        self._entries.append((key, first, end, handle))
        self.number += 1
        return self.number

    def take(self) -> Iterator[tuple[int, list[Acked]]]:
        """Yields what each frame takes, with the number of its first consumer; keeps none."""
        number = self.number + 1 - len(self._entries)
        spans = groupby(self._entries, key=lambda entry: entry[:3])
        blocks = [Acked(key, first, end, [one[3] for one in same]) for (key, first, end), same in spans]
        self.clear()
        for frame in framed(blocks):
            yield number, frame
            number += sum(len(block.consumers) for block in frame)

    def clear(self) -> None:
        """Forgets what was gathered; their numbers are not used again."""
        self._entries = []
        self._places = {}
