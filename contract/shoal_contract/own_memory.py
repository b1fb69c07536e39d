"""What a process holds, and ending the connections that hold what no handler has read, where that is too much."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from shoal_contract.hang_up import Address, hang_up_on
from shoal_contract.limits import CONNECTIONS_ENDED_PER_LOOK, UNREAD_ENDED_BYTES_LEAST, UNREAD_ENDED_BYTES_MIN
from shoal_contract.unread import Unread

_STATUS = Path("/proc/self/status")


def own_bytes() -> int:
    """Memory that is this process's alone, without pages mapped from files; 0 where that cannot be known."""
    try:
        line = next((line for line in _STATUS.read_text().splitlines() if line.startswith("RssAnon")), "RssAnon: 0 kB")
    except OSError:
        return 0
    return int(line.split()[1]) << 10


async def end_unread(unread: Unread, too_much_bytes: Callable[[], int]) -> int:
    """Looks at what is unread, and hangs up on the connections that have most of it: as many as hold what the process
    holds too much. Returns how many."""
    await asyncio.to_thread(unread.look)
    left_bytes = too_much_bytes()
    addresses: list[Address] = []
    for size_bytes, address in unread.standing(_least_bytes(unread.clients, left_bytes)):
        if left_bytes <= 0 or len(addresses) == CONNECTIONS_ENDED_PER_LOOK:
            break
        left_bytes -= size_bytes
        addresses.append(address)
    if addresses:
        await hang_up_on(*addresses)
    return len(addresses)


def _least_bytes(clients: int, too_much_bytes: int) -> int:
    """What one must have at least: less where many have a little each, and hold what is too much together."""
    return max(UNREAD_ENDED_BYTES_LEAST, min(UNREAD_ENDED_BYTES_MIN, too_much_bytes // max(1, 2 * clients)))
