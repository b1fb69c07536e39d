"""What the core needs of a source of random numbers; `random.Random` is one. The caller seeds it, so runs can be
repeated."""

from typing import Protocol


class Chance(Protocol):
    def random(self) -> float:
        """Returns 0 <= x < 1."""
        ...

    def randrange(self, stop: int, /) -> int:
        """Returns 0 <= x < stop."""
        ...
