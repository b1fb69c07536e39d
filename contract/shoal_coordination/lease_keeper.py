"""Keeps one lease in a thread, even while the event loop is busy.

Belongs here: when to renew, and how long the lease surely lives. Does not: speaking to etcd (lease_connection.py), the
event loop's side (lease.py). The lease's time counts from the moment before each renewal is sent, so the lease ends
here before it ends in etcd.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from shoal_contract.errors import ShoalError, Unavailable
from shoal_coordination import limits
from shoal_coordination.lease_connection import LeaseConnection

_log = logging.getLogger(__name__)

# A monotonic clock; if the system has one, one that also counts while the machine is suspended: etcd does not wait.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    """Returns the time by which leases are counted."""
    return time.clock_gettime(_CLOCK)


class LeaseKeeper:
    """Renews a lease until it is stopped, until `wanted` returns False, or until the lease is lost.

    `on_end(lost)` is called once, from the thread. The thread never keeps the process from ending.
    """

    def __init__(
        self,
        connection: LeaseConnection,
        lease: int,
        ttl_s: int,
        ends_s: float,
        wanted: Callable[[], bool],
        on_end: Callable[[bool], None],
    ) -> None:
        self._connection = connection
        self._lease = lease
        self._ttl_s = ttl_s
        self._wanted = wanted
        self._on_end = on_end
        self._ends_s = ends_s
        """The time, by `now_s`, until which etcd surely holds the lease. Grows until it is lost. Only the thread writes
        it."""
        self._stopped = threading.Event()
        self._complained = False
        self._thread = threading.Thread(target=self._run, name=f"lease {lease:x}", daemon=True)
        self._thread.start()

    @property
    def remaining_s(self) -> float:
        """Returns the seconds that the lease surely lives; 0 once lost or stopped. Takes no lock: any thread may ask at
        any time."""
        return 0.0 if self._stopped.is_set() else max(0.0, self._ends_s - now_s())

    def stop(self) -> None:
        """Stops renewing; the lease ends by itself. The thread ends at once. May be called from any thread."""
        self._stopped.set()
        self._connection.close()

    def join(self) -> None:
        """Returns when the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        lost = False
        try:
            lost = self._keep()
        finally:
            self._ends_s = 0.0
            self._connection.close()
            self._on_end(lost)

    def _keep(self) -> bool:
        """Returns whether the lease is lost; False: it was no longer wanted."""
        while remaining_s := self.remaining_s:
            self._stopped.wait(min(self._ttl_s / limits.LEASE_BEATS, remaining_s))
            if not self._wanted():
                return False
            self._renew()
        if self._stopped.is_set():
            return False
        _log.error(
            "lease %x is lost: etcd did not renew it in time. What depends on it stops, since another node may take"
            " over; if this comes again, look at etcd and the network to it",
            self._lease,
        )
        return True

    def _renew(self) -> None:
        """Tries one endpoint after the other until the lease is renewed, over, or no longer wanted."""
        pause_s = limits.PAUSE_S_MIN
        while self.remaining_s and self._wanted():
            for _ in range(self._connection.endpoints):
                if self._renewed():
                    return
            self._stopped.wait(min(pause_s, self.remaining_s))
            pause_s = min(2 * pause_s, limits.LEASE_PAUSE_S_MAX)

    def _renewed(self) -> bool:
        """Tries once. Returns True also if the lease is over and there is nothing more to try."""
        asked_s = now_s()
        if not (remaining_s := self.remaining_s):
            return True
        try:
            ttl_s = self._connection.renew(self._lease, min(remaining_s, self._patience_s()))
        except Exception as error:
            # Not even a bug may end the thread: then nothing would report that the lease is lost.
            self._complain(error)
            return False
        if self.remaining_s:  # A lease that was over stays over: its owner may have been told.
            self._ends_s = asked_s + ttl_s if ttl_s else 0.0
        if self._complained:
            self._complained = False
            _log.info("lease %x is renewed again", self._lease)
        return True

    def _patience_s(self) -> float:
        """Returns how long one attempt may take. The first third of the time to live is for an endpoint that has
        answered before, the second for all endpoints in turn."""
        beat_s = self._ttl_s / limits.LEASE_BEATS
        return beat_s if self._connection.proven else beat_s / self._connection.endpoints

    def _complain(self, error: Exception) -> None:
        if self._stopped.is_set() or self._complained:
            return
        self._complained = True
        expected = isinstance(error, ShoalError)
        _log.warning(
            "lease %x could not be renewed: %s. It is tried again until the lease ends, in %.1f s",
            *(self._lease, error, self.remaining_s),
            exc_info=not expected,
        )


def check_granted(asked_s: float, ttl_s: int) -> None:
    """Raises Unavailable if a lease that was asked for at `asked_s` may be over already."""
    if now_s() - asked_s >= ttl_s:
        raise Unavailable(f"etcd took longer than {ttl_s} s to grant a lease")
