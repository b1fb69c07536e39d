"""What dispatch wants to hear of; the core reports no other changes. Not state: replicas and replay watch nothing."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field


@dataclass(slots=True)
class Watch:
    """Ids of keys and queues that sessions depend on, and names of queues that are attached but not there yet."""

    keys: Container[bytes] = field(default_factory=frozenset)
    queues: Container[bytes] = field(default_factory=frozenset)
    awaited: Container[bytes] = field(default_factory=frozenset)
