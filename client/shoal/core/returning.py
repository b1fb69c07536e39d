"""Follows the messages of one key that an inbox gave back, so that nothing of the key overtakes them.

Each nack has a number, and each delivery tells up to which number the slice had looked at them before it was put on its
way. So what was on its way by then is known for it: it is behind what went back, and goes back, too; or it is a copy of
what went back, which the slice gives again anyway. What comes later is in order. Pure.
"""

from __future__ import annotations

from collections import deque

from shoal.limits import RETURNING_RANGES_MAX

NackPlace = tuple[int, int]
"""The number of a stream, and that of a nack on it (`Nacks.number` of the contract): later ones are greater."""


class Returning:
    """Is what one queue has on its way back of one key."""

    __slots__ = ("_lowest", "_pieces")

    def __init__(self) -> None:
        self._pieces: dict[int, tuple[int, NackPlace]] = {}
        """First offset -> the offset behind the last one, and the nack that gave them back; the first nack first."""
        self._lowest: deque[tuple[int, NackPlace]] = deque()
        """For each nack the lowest offset that it or a later one gave back, with the nack that gave it back; each pair
        once. Both ascend."""

    def __bool__(self) -> bool:
        """Returns whether something is on its way back."""
        return bool(self._pieces)

    def add(self, first: int, end: int, place: NackPlace) -> None:
        """Notes that offsets first <= offset < end go back by a nack, the newest."""
        self._pieces.pop(first, None)
        if len(self._pieces) == RETURNING_RANGES_MAX:
            self._pieces.clear()
            self._lowest.clear()
        self._pieces[first] = end, place
        while self._lowest and self._lowest[-1][0] >= first:
            self._lowest.pop()
        self._lowest.append((first, place))

    def taken(self, place: NackPlace) -> None:
        """Notes that the slice had looked at all nacks up to this one before it put on its way what comes now."""
        while self._pieces:
            first, (_, of) = next(iter(self._pieces.items()))
            if of > place:
                break
            del self._pieces[first]
        while self._lowest and self._lowest[0][1] <= place:
            self._lowest.popleft()

    def is_behind(self, end: int) -> bool:
        """Returns whether something below the offset `end` is on its way back. A message that ends there is behind it,
        or is the same."""
        return bool(self._lowest) and self._lowest[0][0] < end

    def has(self, first: int, end: int) -> bool:
        """Returns whether all offsets first <= offset < end are on their way back. A copy of them that comes now left
        the slice before it had their nack, which brings them again."""
        while first < end:
            piece = self._pieces.get(first)
            if piece is None:
                return False
            first = piece[0]
        return True
