"""Names what dispatch and watches want to hear of; apply reports no other changes. This is not state: replicas and
replay want nothing."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field


@dataclass(slots=True)
class WatchedMembers:
    """Says whose members are watched: keys by name, and by prefix. `lengths`: those of the prefixes, each once.
    `queues`: ids of queues that are known to be members of watched keys."""

    keys: Container[bytes]
    prefixes: Container[bytes]
    queues: Container[bytes]
    lengths: tuple[int, ...] = ()

    def wants(self, key: bytes) -> bool:
        """Returns whether joins and leaves of this key are wanted."""
        return key in self.keys or any(key[:length] in self.prefixes for length in self.lengths)


@dataclass(slots=True)
class Interest:
    """Holds ids of keys that sessions depend on, of queues of which dispatch has something (a feed, or marks of what
    was given before), and names of attached queues that do not exist yet. `members`: whose members are watched; None
    while none are, so that binds and unbinds ask nothing more."""

    keys: Container[bytes] = field(default_factory=frozenset)
    queues: Container[bytes] = field(default_factory=frozenset)
    awaited: Container[bytes] = field(default_factory=frozenset)
    members: WatchedMembers | None = None
