"""Counts what was applied since the last freeze: after a crash, a start would have to replay it."""

from __future__ import annotations


class Tail:
    """Keeps the counts. They belong to the tables, whichever role applies to them. `operations`: as far as the role
    that applied knew them, and at least one for each record. `journal_bytes`: those of the records' payloads."""

    __slots__ = ("journal_bytes", "operations")

    def __init__(self) -> None:
        self.operations = 0
        self.journal_bytes = 0

    def applied(self, operations: int, payload_bytes: int) -> None:
        self.operations += operations
        self.journal_bytes += payload_bytes

    def frozen(self) -> None:
        """Begins anew: a checkpoint will have everything counted so far."""
        self.operations = self.journal_bytes = 0
