"""A lease that is kept until it is revoked or lost: the node's sign of life.

Belongs here: renewal, and knowing by this machine's own clock how long the lease surely lives. Does not: what hangs on
it (nodes.py). The lease is counted from before each renewal was sent, so it is over here before it is over in etcd.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from shoal_contract.errors import Conflict, OutcomeUnknown, OutOfRange, ShoalError, Unavailable
from shoal_contract.tasks import Tasks
from shoal_coordination import limits
from shoal_coordination.client import EtcdClient

_log = logging.getLogger(__name__)

# Monotonic, and where the system has it one that also counts while the machine is suspended: etcd does not wait.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _now_s() -> float:
    return time.clock_gettime(_CLOCK)


class Lease:
    """Made by `grant_lease`. After a loss it stays lost; who needs a lease again grants a new one."""

    def __init__(self, client: EtcdClient, lease: int, ttl_s: int, ends_s: float, on_loss: Callable[[], None]) -> None:
        self.id = lease
        self.ttl_s = ttl_s
        self._client = client
        self._on_loss = on_loss
        self._ends_s = ends_s
        """By _now_s: until then etcd surely holds the lease. Only grows, until it is lost."""
        self._tasks = Tasks(f"lease {lease:x}")
        self._tasks.start("keep", self._keep())

    @property
    def left_s(self) -> float:
        """Seconds that the lease surely lives; 0 when lost. Ask before each step that needs it: callbacks come late."""
        return max(0.0, self._ends_s - _now_s())

    async def revoke(self) -> None:
        """Ends the lease at once, with its keys. `on_loss` is not called. If etcd is away, it ends by itself."""
        await self.abandon()
        try:
            await self._client.revoke_lease(self.id)
        except (OutcomeUnknown, Conflict) as error:
            _log.info("lease %x was not revoked: %s", self.id, error)

    async def abandon(self) -> None:
        """Keeps it no longer; it ends by itself. `on_loss` is not called."""
        await self._tasks.close()
        self._ends_s = 0.0

    async def _keep(self) -> None:
        while self.left_s:
            await asyncio.sleep(min(self.ttl_s / limits.LEASE_BEATS, self.left_s))
            await self._renew()
        self._ends_s = 0.0
        _log.error("lease %x is lost", self.id)
        self._on_loss()

    async def _renew(self) -> None:
        """Tries until it is renewed or over."""
        pause_s = limits.PAUSE_S_MIN
        while self.left_s:
            asked_s = _now_s()
            try:
                async with asyncio.timeout(self.left_s):
                    ttl_s = await self._client.renew_lease(self.id, self.ttl_s / limits.LEASE_BEATS)
            except (ShoalError, TimeoutError) as error:
                _log.warning("lease %x has %.1f s left and is not renewed: %r", self.id, self.left_s, error)
                await asyncio.sleep(min(pause_s, self.left_s))
                pause_s = min(2 * pause_s, limits.PAUSE_S_MAX)
            else:
                self._ends_s = asked_s + ttl_s if ttl_s else 0.0
                return


async def grant_lease(client: EtcdClient, ttl_s: int, on_loss: Callable[[], None]) -> Lease:
    """A lease of `ttl_s` seconds, kept from now on. `on_loss` is called once, from the event loop, when it is lost.

    Raises OutOfRange below LEASE_TTL_S_MIN, and what EtcdClient raises.
    """
    if ttl_s < limits.LEASE_TTL_S_MIN:
        raise OutOfRange(
            f"a lease of {ttl_s} s is too short; the least is {limits.LEASE_TTL_S_MIN} s",
            subject="ttl_s", limit=limits.LEASE_TTL_S_MIN, value=max(0, ttl_s),
        )  # fmt: skip
    asked_s = _now_s()
    lease = await client.grant_lease(ttl_s)
    if _now_s() - asked_s >= ttl_s:
        raise Unavailable(f"etcd took longer than {ttl_s} s to grant a lease")
    return Lease(client, lease, ttl_s, asked_s + ttl_s, on_loss)
