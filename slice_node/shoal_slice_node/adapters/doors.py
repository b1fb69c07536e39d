"""What clients, operators and probes see of the node: its gRPC servers, its HTTP, and the line that says it is ready.

Belongs here: what is shown and served in which role. Not here: when roles change (roles).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from shoal_contract.errors import Unavailable
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.figures import Figures
from shoal_slice_node.adapters.metrics import ShownRole
from shoal_slice_node.adapters.servers import Servers


class Watched(Protocol):
    """Shows the node on HTTP (adapters/http), which a node may not have."""

    def show(self, shown: ShownRole, figures: Figures | None) -> None: ...


class Doors:
    """Opens when the node leads, and is closed to clients otherwise. `on_open` is called when it opens the first
    time."""

    def __init__(
        self,
        servers: Servers,
        watched: Watched | None,
        slice_name: str,
        node: str,
        store_folder: Path,
        on_open: Callable[[Broker], None],
    ) -> None:
        self.servers = servers
        self._watched = watched
        self._slice = slice_name
        self._node = node
        self._store_folder = store_folder
        self._on_open = on_open
        self._opened = False

    def show(self, role: str, figures: Figures | None = None) -> None:
        """Shows the role to probes. Without figures the node is not ready."""
        if self._watched is not None:
            self._watched.show(ShownRole(self._slice, self._node, role), figures)

    def open(self, broker: Broker, role: str) -> None:
        """Lets clients and operators in."""
        figures = Figures(broker, self._slice, self._node)
        self.servers.serve(broker, figures, self._store_folder)
        self.show(role, figures)
        if not self._opened:
            self._opened = True
            self._on_open(broker)

    async def refuse(self, why: str) -> None:
        """Ends all calls and sessions, and refuses new ones until it opens again. `why`: a clause."""
        told = f"node {self._node} does not lead slice {self._slice} now, and tries to lead it again: {why}"
        unknown = Unavailable(f"{told}. The outcome of this call is not known: ask again", subject=self._slice)
        await self.servers.refuse(unknown, Unavailable(f"{told}. Nothing was done: ask again", subject=self._slice))
