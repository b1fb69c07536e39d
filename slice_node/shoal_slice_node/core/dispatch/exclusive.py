"""Decides which one session consumes an exclusive queue: the newest, or the oldest that is still there.

Of a client that lost its connection, the slice remembers since when it consumed the queue. So its return is no newer
attach: if another session came meanwhile, that one stays. A word to a client whose connection was lost does not reach
it, though its session may still stand here: so the client is forgotten only when the session that was given the word
detaches the queue, or asks for it again. All of this is in memory: after a restart the client that
comes last is the newest. Not here: ending attachments (attaching).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from shoal_contract.errors import Conflict
from shoal_contract.names import show
from shoal_slice_node.core.limits import EXCLUSIVES_REMEMBERED_MAX, OWNERS_REMEMBERED_MAX

NEWEST: Final = "newest"
"""The word of the queue's option."""


class Exclusive:
    """Remembers the consumers of one exclusive queue, oldest first. `newest`: a newer session takes it over; else the
    older one stays."""

    __slots__ = ("_owners", "newest")

    def __init__(self, newest: bool) -> None:
        self.newest = newest
        self._owners: dict[bytes, int] = {}
        """Clients that consume it, or lost it and may not know that, by their first attach; for each the number of the
        session that was given the word, 0 if none was. At most OWNERS_REMEMBERED_MAX."""

    def newer(self, owner: bytes, holder: bytes) -> bool:
        """Returns whether the client may take the queue over from its holder. A client that is not remembered is the
        newest."""
        if not self.newest:
            return False
        owners = list(self._owners)
        return owner not in self._owners or holder not in self._owners or owners.index(owner) > owners.index(holder)

    def took(self, owner: bytes) -> None:
        """Notes that the client consumes the queue."""
        if owner:
            self._owners[owner] = 0
            if len(self._owners) > OWNERS_REMEMBERED_MAX:
                del self._owners[next(iter(self._owners))]

    def told(self, owner: bytes, session: int) -> None:
        """Notes that this session of the client was given the word that another one consumes the queue."""
        if owner in self._owners:
            self._owners[owner] = session

    def knows(self, owner: bytes, session: int) -> None:
        """Forgets a client if this session was given the word: what it asks for now, it asks for anew."""
        if session and self._owners.get(owner) == session:
            self.forget(owner)

    def forget(self, owner: bytes) -> None:
        """Forgets a client that left by itself: when it comes back, it is new."""
        self._owners.pop(owner, None)


class Exclusives:
    """Remembers the consumers of exclusive queues, also while these have none: of those that were asked for last."""

    def __init__(self) -> None:
        self._by_queue: OrderedDict[bytes, Exclusive] = OrderedDict()

    def __bool__(self) -> bool:
        """Returns whether any are remembered."""
        return bool(self._by_queue)

    def of(self, queue_id: bytes, word: str) -> Exclusive:
        """Returns the consumers of an exclusive queue. `word`: that of its option."""
        exclusive = self._by_queue.pop(queue_id, None) or Exclusive(word == NEWEST)
        self._by_queue[queue_id] = exclusive
        if len(self._by_queue) > EXCLUSIVES_REMEMBERED_MAX:
            self._by_queue.popitem(last=False)
        return exclusive


def taken_over(queue: bytes) -> Conflict:
    """Returns the error for the session that lost the queue."""
    name = show(queue)
    return Conflict(f"queue {name} is exclusive: another session, newer than this one, consumes it now", subject=name)


def consumed_elsewhere(queue: bytes, exclusive: Exclusive) -> Conflict:
    """Returns the error for the session that does not get the queue."""
    name = show(queue)
    stays = "came before" if not exclusive.newest else "is newer than this one"
    return Conflict(f"queue {name} is exclusive: another session, which {stays}, consumes it", subject=name)
