"""Ends connections where a process holds too much memory: the last resort for memory that no account covers, because
gRPC or the kernel holds it for a connection.

It runs in its own thread. gRPC's threads can add half a gigabyte a second, also while the event loop is busy for
seconds; but gRPC frees memory only through the loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from heapq import nlargest
from operator import itemgetter
from random import Random

from shoal_runtime.limits import (
    BUDGET_LOOK_S,
    BUFFERED_BYTES_LEAST,
    BUFFERED_BYTES_MAX,
    BUFFERED_ENDED_PER_LOOK,
    CALL_HELD_BYTES,
    CONNECTIONS_ENDED_PER_LOOK,
    DOORS_S,
    FUTILE_PARTS,
    GIVE_BACK_S,
    KERNEL_PARTS,
    LOOK_SHARE,
    LOOK_SHARE_HURRIED,
    MEMORY_LOOK_S,
    SHARE_ENDED_MAX,
    SHARE_FELL_PARTS,
    SHARE_FUTILE_PARTS,
    SHARE_GREW_PARTS,
    SHARE_RESTS_S,
    SHARE_WAIT_S,
    UNREAD_ACCEPT_S,
    UNREAD_ENDED_AT_ONCE_BYTES,
    UNREAD_ENDED_BYTES_LEAST,
    UNREAD_ENDED_BYTES_MIN,
    UNREAD_LOOK_S,
)
from shoal_runtime.process_memory import give_back, own_bytes
from shoal_runtime.rare_log import RareLog
from shoal_runtime.unread import Client, Unread

_log = logging.getLogger(__name__)


class MemoryGuard:
    """Looks at the process's memory, and ends connections while it is short. `budget_bytes`: what the process should
    hold. `short_bytes`: above this, memory is short; the guard's owner raises it for memory that stays. `chance`: draws
    where connections end by chance; None: one of its own.

    While memory is short, connections end until the process is back at its budget: `_chosen` says which. New
    connections are kept from the ports of `unread` for a moment, because a client comes back sooner than its memory is
    free. What the kernel holds for connections counts too, as it does for a container's limit, but only beyond what
    slow clients have there at all times. The counted sizes may differ from the memory really held, so each look starts
    from what is held at that time. Where all connections together hold little of the excess, none ends."""

    def __init__(
        self,
        unread: Unread,
        budget_bytes: int,
        short_bytes: int,
        held_bytes: Callable[[], int] = own_bytes,
        chance: Random | None = None,
    ) -> None:
        self.short_bytes = short_bytes
        self.ended = 0
        """The number of connections ended since the start."""
        self._unread = unread
        self._budget_bytes = budget_bytes
        self._short_at_first_bytes = short_bytes
        self._held_bytes = held_bytes
        self._was_short = False
        self._shut = False
        self._doors_next_s = 0.0
        """The time when the ports may be opened, or shut again, in seconds of time.monotonic."""
        self._gave_back_s = 0.0
        self._random = chance or Random()
        self._by_share_next_s = 0.0
        self._by_share_rests_until_s = 0.0
        self._by_share_fell_bytes = self._by_share_grew_bytes = 0
        """When clients may be chosen by their share again, in seconds of time.monotonic: the memory of the last ones is
        free by then. Until the second time only if less is held than the first number of bytes, or more than the
        second: otherwise their end freed nothing."""
        self._took_s = 0.0
        """The processor time that the last look took, in seconds."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory guard", daemon=True)
        self._complaints = RareLog(_log)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended, and the ports are open: the process may go on without the guard."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._shut:
            self._shut = False
            self._unread.shut_doors(False)

    def _run(self) -> None:
        looked_s = 0.0
        while not self._stopped.wait(MEMORY_LOOK_S):
            try:
                if time.monotonic() - looked_s >= self._pause_s():
                    began_s = time.thread_time()
                    self.look()
                    looked_s, self._took_s = time.monotonic(), time.thread_time() - began_s
            except Exception as error:
                self._shut_doors(False)
                looked_s = time.monotonic()
                self._complaints.warning(
                    "connections could not be looked at: %s: %s. Until a look succeeds, none ends for the memory that"
                    " it holds; it is tried again",
                    *(type(error).__name__, error),
                )

    def _pause_s(self) -> float:
        """Returns the time between two looks, in seconds. Beside what the kernel held at the last look, it considers
        all that was sent since: the kernel may still hold it."""
        held_bytes = self._held_bytes()
        if held_bytes + self._kernel_bytes() > self.short_bytes or self._shut:
            return 0.0
        if held_bytes + self._kernel_bytes(self._unread.sent_bytes) > self.short_bytes:
            return LOOK_SHARE_HURRIED * self._took_s
        return min(UNREAD_LOOK_S, max(BUDGET_LOOK_S, LOOK_SHARE * self._took_s))

    def _all_held_bytes(self) -> int:
        return self._held_bytes() + self._kernel_bytes()

    def _kernel_bytes(self, sent_bytes: int = 0) -> int:
        """Returns the kernel's memory that counts. `sent_bytes`: what was sent since the last look."""
        return max(0, self._unread.kernel_bytes + sent_bytes - self._budget_bytes // KERNEL_PARTS)

    def look(self) -> None:
        """Looks once, and ends connections if memory is short. To be called from one thread at a time."""
        if not self._was_short and self._all_held_bytes() > self.short_bytes:
            self._shut_doors(True)  # Before the first look, which takes long.
        self._unread.look()
        held_bytes = self._all_held_bytes()
        self._was_short = held_bytes > self.short_bytes
        chosen: Sequence[Client] = ()
        if self._was_short:
            stays_bytes = max(0, self.short_bytes - self._short_at_first_bytes)
            too_much_bytes = held_bytes - stays_bytes - self._budget_bytes
            chosen = self._chosen(self._unread.clients.values(), too_much_bytes, held_bytes)
        self._shut_doors(bool(chosen))  # Before connections end: a client comes back within a millisecond.
        for one in chosen:
            self._unread.hang_up(one)
        self.ended += len(chosen)
        now_s = time.monotonic()
        if chosen:
            self._complaints.warning(
                "memory is short: %d MiB are held, and the budget is %d. %d connections that hold some of it end,"
                " and no new ones are taken for a second; their clients connect again. If this comes often, give the"
                " process more memory, or look for a client that does not read",
                *(held_bytes >> 20, self._budget_bytes >> 20, len(chosen)),
            )
        if self._was_short and now_s - self._gave_back_s > GIVE_BACK_S:
            self._gave_back_s = now_s
            give_back()

    def _chosen(self, clients: Collection[Client], too_much_bytes: int, held_bytes: int) -> Sequence[Client]:
        """Returns the clients whose connections end now. Those come first of which it is known that they hold much:
        unread or unsent bytes. Then come those without calls for which gRPC keeps buffers: a new connection costs them
        a round trip. What the others hold is an estimate, so some of them end by chance, each with its share."""
        if sum(_size_bytes(one) + _estimated_bytes(one) for one in clients) < too_much_bytes // FUTILE_PARTS:
            return ()
        now_s = time.monotonic()
        chosen = _largest(clients, too_much_bytes) or _resting(clients, now_s)
        if chosen or now_s < self._by_share_next_s:
            return chosen
        if sum(map(_estimated_bytes, clients)) < too_much_bytes // SHARE_FUTILE_PARTS:
            return ()  # Sessions that do nothing are no reason: something else holds the memory.
        in_vain = self._by_share_fell_bytes < held_bytes < self._by_share_grew_bytes
        if in_vain and now_s < self._by_share_rests_until_s:
            return ()
        self._by_share_next_s = now_s + SHARE_WAIT_S
        self._by_share_rests_until_s = now_s + SHARE_RESTS_S
        self._by_share_fell_bytes = held_bytes - self._budget_bytes // SHARE_FELL_PARTS
        self._by_share_grew_bytes = held_bytes + self._budget_bytes // SHARE_GREW_PARTS
        return _by_share(clients, too_much_bytes, self._random)

    def _shut_doors(self, shut: bool) -> None:
        """Keeps new connections out, or lets them in again. The ports are shut for DOORS_S at a time, and then open for
        as long. A client's kernel tries again a second after its first attempt, so a newcomer waits for that second
        and no longer, whatever goes on."""
        now_s = time.monotonic()
        if now_s < self._doors_next_s:
            return
        if self._shut or shut:
            self._shut = not self._shut and self._unread.shut_doors(True)
            if not self._shut:
                self._unread.shut_doors(False)
            self._doors_next_s = now_s + DOORS_S


def _largest(clients: Collection[Client], too_much_bytes: int) -> list[Client]:
    """Returns the clients with most unread or unsent bytes: all that have more than calls can have, and as many as hold
    `too_much_bytes` together. Where many clients hold little each but too much together, a client with fewer bytes is
    chosen too."""
    least_bytes = max(UNREAD_ENDED_BYTES_LEAST, min(UNREAD_ENDED_BYTES_MIN, too_much_bytes // max(1, 2 * len(clients))))
    sizes = ((_size_bytes(one), one.address, one) for one in clients)
    chosen: list[Client] = []
    for size_bytes, _, one in sorted((one for one in sizes if one[0] >= least_bytes), reverse=True):
        enough = too_much_bytes <= 0 and size_bytes < UNREAD_ENDED_AT_ONCE_BYTES
        if enough or len(chosen) == CONNECTIONS_ENDED_PER_LOOK:
            break
        too_much_bytes -= size_bytes
        chosen.append(one)
    return chosen


def _resting(clients: Collection[Client], now_s: float) -> list[Client]:
    """Returns clients without calls for which gRPC keeps buffers of what they once sent, the largest first."""
    until_s = now_s - UNREAD_ACCEPT_S
    found = [one for one in clients if _buffered_bytes(one) and one.rests_since_s < until_s]
    return sorted(found, key=lambda one: one.burst, reverse=True)[:BUFFERED_ENDED_PER_LOOK]


def _by_share(clients: Collection[Client], too_much_bytes: int, chance: Random) -> list[Client]:
    """Returns clients that hold `too_much_bytes` together, as far as is known, at most SHARE_ENDED_MAX. The chance of
    each is its share of all that is held: however clients divide what they hold among connections, those pay that hold
    it. (Weighted sampling without replacement, Efraimidis and Spirakis 2006.)"""
    weighted = ((_estimated_bytes(one), one) for one in clients)
    drawn = [(chance.random() ** (1 / size_bytes), size_bytes, one) for size_bytes, one in weighted if size_bytes]
    chosen: list[Client] = []
    for _, size_bytes, one in nlargest(SHARE_ENDED_MAX, drawn, key=itemgetter(0)):
        if too_much_bytes <= 0:
            break
        too_much_bytes -= size_bytes
        chosen.append(one)
    return chosen


def _estimated_bytes(client: Client) -> int:
    """Returns what a process holds for a client besides what is unread and unsent, about."""
    return _buffered_bytes(client) + client.calls * CALL_HELD_BYTES


def _buffered_bytes(client: Client) -> int:
    return min(client.burst, BUFFERED_BYTES_MAX) if client.burst >= BUFFERED_BYTES_LEAST else 0


def _size_bytes(client: Client) -> int:
    now_bytes = client.unread[-1]
    unread_bytes = now_bytes if now_bytes >= UNREAD_ENDED_AT_ONCE_BYTES else client.standing
    return unread_bytes + client.standing_kernel
