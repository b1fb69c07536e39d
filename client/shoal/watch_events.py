"""Defines what watches of members and counts give to applications.

Names are `str`, with `*_bytes` for names that are not UTF-8. Not here: how these travel (watching), and how they follow
from what slices tell (core/watched).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from shoal_contract.names import text


@dataclass(frozen=True, slots=True)
class Members:
    """Tells all members of a key: what was told before is over. It comes first; and again only where a key with too
    many members to tell has fewer now, or a watch with `after` lost its place."""

    online_bytes: dict[bytes, bool]
    """Queue -> True if a session has it attached now. Always False without `presence`."""
    position: str
    """The place behind this event: `after` of another watch."""

    @property
    def online(self) -> dict[str, bool]:
        """Returns `online_bytes` with queues as text."""
        return {text(queue): online for queue, online in self.online_bytes.items()}


@dataclass(frozen=True, slots=True)
class _OfQueue:
    queue_bytes: bytes
    position: str

    @property
    def queue(self) -> str:
        """Returns the queue's name."""
        return text(self.queue_bytes)


@dataclass(frozen=True, slots=True)
class Joined(_OfQueue):
    """Tells that a queue was bound to the key: `queue` (or `queue_bytes`), and the `position` behind this event."""

    online: bool = False
    """True if a session has it attached already."""


@dataclass(frozen=True, slots=True)
class Left(_OfQueue):
    """Tells that a queue was unbound from the key, or dropped: `queue`, `queue_bytes`, `position`."""


@dataclass(frozen=True, slots=True)
class Online(_OfQueue):
    """Tells that the first session attached a member: `queue`, `queue_bytes`, `position`."""


@dataclass(frozen=True, slots=True)
class Offline(_OfQueue):
    """Tells that the last session left a member: `queue`, `queue_bytes`, `position`."""


@dataclass(frozen=True, slots=True)
class MemberCount:
    """Tells how many members a key has that has too many to be told (over 1,000). It replaces what was told before, and
    comes a few times a second at most."""

    queues: int
    """The number of queues bound to the key. A dropped queue may count a moment longer."""
    online: int
    """How many of them are consumed now; 0 without `presence`."""
    position: str
    """The place behind this event: `after` of another watch."""


@dataclass(frozen=True, slots=True)
class KeyCount:
    """Tells how many queues are bound to one key. It replaces what was told of the key before, and comes a few times a
    second at most."""

    key_bytes: bytes
    """The key, as bytes."""
    queues: int
    """The number of queues bound to the key; 0: it has no members any more."""
    online: int
    """How many of them are consumed now; 0 without `presence`."""

    @property
    def key(self) -> str:
        """Returns the key."""
        return text(self.key_bytes)


@dataclass(frozen=True, slots=True)
class Complete:
    """Tells, once, that every slice has told its state: from here on come changes."""


MemberEvent: TypeAlias = Members | Joined | Left | Online | Offline | MemberCount
"""What a watch of a key's members gives."""
CountEvent: TypeAlias = KeyCount | Complete
"""What a watch of counts gives."""
