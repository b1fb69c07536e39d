"""Keeps a watch's place in what is told of a key or prefix. It holds no changes: a slow watch falls behind, and gets a
snapshot when what it lacks is no longer remembered."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.watching.limits import PART_MEMBER_BYTES

NOTHING: Final = -1
"""The place of a watch that has been told nothing yet."""


class Watcher:
    """Keeps one watch. `sent`: it has what was told up to this number. `parts`: what is left of a snapshot of members,
    which ends at `parts_to`. `after`: the key where a snapshot of counts goes on, which will end at `parts_to`; None:
    there is none under way. `ended_by`: why it ended from this side."""

    __slots__ = (
        "after",
        "connection",
        "ended_by",
        "greeted",
        "number",
        "parts",
        "parts_to",
        "sent",
        "snapshot_again_ms",
        "snapshot_began_ms",
    )

    def __init__(self, number: int, connection: Hashable, sent: int) -> None:
        self.number = number
        self.connection = connection
        self.sent = sent
        self.parts: deque[wire.WatchResponse] = deque()
        self.parts_to = NOTHING
        self.after: bytes | None = None
        self.snapshot_began_ms = 0
        self.snapshot_again_ms = 0
        self.greeted = False
        """It got a response already. A watch that goes on from a place gets one at once, even if nothing changed."""
        self.ended_by: ShoalError | None = None

    @property
    def rest_bytes(self) -> int:
        """Returns about what the parts take that it still has to be told."""
        return sum(part.ByteSize() + PART_MEMBER_BYTES * len(part.queues) for part in self.parts)
