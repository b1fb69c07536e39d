"""Keeps a lease until it is revoked or lost: the node's sign of life.

Belongs here: the event loop's side of a lease. Does not: its renewal, which a thread of its own does (lease_keeper.py),
and the records that end with it (nodes.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from shoal_contract.errors import Conflict, OutcomeUnknown, OutOfRange
from shoal_coordination import limits
from shoal_coordination.client import EtcdClient
from shoal_coordination.lease_connection import LeaseConnection
from shoal_coordination.lease_keeper import LeaseKeeper, check_granted, now_s

_log = logging.getLogger(__name__)


class Lease:
    """Keeps a lease, which `grant_lease` made. After a loss the lease stays lost; its owner grants a new one if it
    needs a lease again.

    It is kept while the event loop is busy, and no longer than the event loop lives.
    """

    def __init__(self, client: EtcdClient, lease: int, ttl_s: int, ends_s: float, on_loss: Callable[[], None]) -> None:
        self.id = lease
        self._client = client
        self._on_loss = on_loss
        self._abandoned = False
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        connection = LeaseConnection(client.options)
        self._keeper = LeaseKeeper(connection, lease, ttl_s, ends_s, self._loop_lives, self._on_keeper_end)

    @property
    def remaining_s(self) -> float:
        """Returns the seconds that the lease surely lives; 0 when lost. Any thread may ask, at any time.

        Ask before each step that needs the lease: callbacks come late.
        """
        return self._keeper.remaining_s

    async def revoke(self) -> None:
        """Ends the lease at once, with its keys. `on_loss` is not called. If etcd is away, the lease ends by itself."""
        await self.abandon()
        try:
            await self._client.revoke_lease(self.id)
        except (OutcomeUnknown, Conflict) as error:
            _log.info("lease %x could not be ended early: %s. It ends by itself when its time is over", self.id, error)

    async def abandon(self) -> None:
        """Stops renewing the lease, which then ends by itself. `on_loss` is not called. Returns when its thread has
        ended."""
        self._abandoned = True
        self._keeper.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.LEASE_END_S):
                await self._ended.wait()
                self._keeper.join()  # Saying that it ends is the last thing that the thread does.

    def _loop_lives(self) -> bool:
        return not self._loop.is_closed()

    def _on_keeper_end(self, lost: bool) -> None:
        """Passes the end on from the thread to the event loop, unless the loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end, lost)

    def _end(self, lost: bool) -> None:
        self._ended.set()
        if lost and not self._abandoned:
            self._on_loss()


async def grant_lease(client: EtcdClient, ttl_s: int, on_loss: Callable[[], None]) -> Lease:
    """Grants a lease of `ttl_s` seconds, and keeps it from now on. After a loss the event loop calls `on_loss` once.

    Raises OutOfRange below LEASE_TTL_S_MIN, and what EtcdClient raises.
    """
    if ttl_s < limits.LEASE_TTL_S_MIN:
        raise OutOfRange(
            f"a lease of {ttl_s} s is too short; the least is {limits.LEASE_TTL_S_MIN} s",
            subject="ttl_s", limit=limits.LEASE_TTL_S_MIN, value=max(0, ttl_s),
        )  # fmt: skip
    asked_s = now_s()
    lease = await client.grant_lease(ttl_s)
    check_granted(asked_s, ttl_s)
    return Lease(client, lease, ttl_s, asked_s + ttl_s, on_loss)
