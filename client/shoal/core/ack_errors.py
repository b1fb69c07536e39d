"""Keeps the errors with which acks came to nothing, for the flushes that are to raise them. Pure."""

from __future__ import annotations


class AckErrors:
    """Keeps the newest error: each flush that was under way raises it; if there was none, the next one does."""

    def __init__(self) -> None:
        self._newest: Exception | None = None
        self._untold: Exception | None = None
        """The newest error, until a flush has raised it."""
        self._count = 0

    def add(self, error: Exception) -> None:
        """Keeps an error."""
        self._newest = self._untold = error
        self._count += 1

    def begin(self) -> int:
        """Returns what `end` takes, once the flush that begins now is done."""
        return self._count

    def end(self, begun: int) -> Exception | None:
        """Returns the error that a flush raises; None: there is none."""
        error = self._newest if self._count > begun else self._untold
        self._untold = None
        return error
