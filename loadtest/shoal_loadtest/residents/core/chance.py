"""What the core asks of a source of chance; `random.Random` is one. The caller seeds it, so runs can be repeated."""

from typing import Protocol


class Chance(Protocol):
    def random(self) -> float:
        """0 <= x < 1."""
        ...

    def randrange(self, stop: int, /) -> int:
        """0 <= x < stop."""
        ...
