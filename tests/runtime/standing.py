"""The clients of which something was unread at each of the last looks."""

from __future__ import annotations

from shoal_runtime.connections import Address
from shoal_runtime.unread import Unread


def standing(unread: Unread, least_bytes: int) -> list[tuple[int, Address]]:
    """Returns the clients with at least so many bytes unread, those with most first."""
    found = [(one.standing, address) for address, one in unread.clients.items()]
    return sorted((one for one in found if one[0] >= max(1, least_bytes)), reverse=True)
