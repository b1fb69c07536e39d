"""Describes what a check found wrong: pure data, for reports and tests."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """Describes one finding. `subject`: the row's key, in hex if it is not a name."""

    table: str
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.table} {self.subject}: {self.text}"
