"""Counts what sessions are given out of turn while others wait for room in the share of deliveries: a little, and
beyond the share.

A client of small messages that reads takes next to nothing of the share, and yet it waited for seconds where hundreds
of connections held chunks that they did not read. So what is next may come out of turn, if it takes at most a part of
what is left for this: then what is left is always enough for what is smaller than others. A connection counts what it
may take for each of its sessions that hold something, and once more.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from shoal_slice_node.core.limits import OUT_OF_TURN_OF_LEFT_PARTS, OUT_OF_TURN_PARTS

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.sessions import Session
    from shoal_slice_node.core.dispatch.shares import Share


class OutOfTurn:
    """Keeps what sessions hold of it, `held_bytes`. `refused`: connections of which a session found no room, and would
    if the others held less."""

    __slots__ = ("_share", "held_bytes", "refused")

    def __init__(self, share: Share) -> None:
        self._share = share
        self.held_bytes = 0
        self.refused: OrderedDict[str, None] = OrderedDict()

    def has_room(self, session: Session, cost_bytes: int, holders: int) -> bool:
        """Returns whether the session may be given what takes so much memory. `holders`: the number of sessions of its
        connection that hold something."""
        most_bytes = self._share.limit_bytes // OUT_OF_TURN_PARTS
        needed_bytes = (session.under_way_bytes + cost_bytes) * (holders + 1) * OUT_OF_TURN_OF_LEFT_PARTS
        if needed_bytes <= most_bytes - self.held_bytes:
            return True
        if needed_bytes <= most_bytes:
            self.refused[session.connection] = None
        return False

    def is_too_large(self, cost_bytes: int) -> bool:
        """Returns whether what takes so much memory never comes out of turn, whatever others hold."""
        return cost_bytes * OUT_OF_TURN_OF_LEFT_PARTS > self._share.limit_bytes // OUT_OF_TURN_PARTS

    def count(self, more_bytes: int) -> None:
        """Notes that sessions hold so much more, or less if it is negative."""
        self.held_bytes += more_bytes
