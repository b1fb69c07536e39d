"""Names what dispatch wants to hear of; the core reports no other changes. This is not state: replicas and replay watch
nothing."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field


@dataclass(slots=True)
class Watch:
    """Holds ids of keys and queues that sessions depend on, and names of attached queues that do not exist yet."""

    keys: Container[bytes] = field(default_factory=frozenset)
    queues: Container[bytes] = field(default_factory=frozenset)
    awaited: Container[bytes] = field(default_factory=frozenset)
