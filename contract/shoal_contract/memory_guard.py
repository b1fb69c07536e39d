"""Ends connections that hold what no handler has read, where a process holds too much: the last resort for what is in
no account.

In a thread of its own. What gRPC holds grows by its own threads, half a gigabyte a second, also while the event loop
is busy for seconds; and what it frees, it frees by the loop.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Collection
from heapq import nlargest
from pathlib import Path

from shoal_contract.limits import (
    BUDGET_LOOK_S,
    CONNECTIONS_ENDED_PER_LOOK,
    DOORS_S,
    GIVE_BACK_S,
    MEMORY_LOOK_S,
    RESTING_ENDED_PER_LOOK,
    UNREAD_ACCEPT_S,
    UNREAD_ENDED_AT_ONCE_BYTES,
    UNREAD_ENDED_BYTES_LEAST,
    UNREAD_ENDED_BYTES_MIN,
    UNREAD_LOOK_S,
)
from shoal_contract.rare_log import RareLog
from shoal_contract.unread import Client, Unread

_log = logging.getLogger(__name__)
_STATUS = Path("/proc/self/status")


def own_bytes() -> int:
    """Memory that is this process's alone, without pages mapped from files; 0 where that cannot be known."""
    try:
        line = next((line for line in _STATUS.read_text().splitlines() if line.startswith("RssAnon")), "RssAnon: 0 kB")
    except OSError:
        return 0
    return int(line.split()[1]) << 10


def give_back() -> None:
    """Returns what was freed to the kernel, where the C library can (malloc_trim(3)). Takes milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class MemoryGuard:
    """`budget_bytes`: what the process should hold; above it the guard looks often. Above `short_bytes`, which its
    owner may change, the connections with most that is unread end, until what is left is the budget. No new ones come
    to the ports of `unread` for a moment when it is crossed, and when some end: else who was hung up on would be back
    sooner than what it held is free. What the kernel holds for connections counts too, as it does for a container's
    limit. What is counted need not be what is held, so each look goes by what is held
    then, and not by what should be free soon."""

    def __init__(
        self, unread: Unread, budget_bytes: int, short_bytes: int, held_bytes: Callable[[], int] = own_bytes
    ) -> None:
        self.short_bytes = short_bytes
        self.ended = 0
        """Connections, since the start."""
        self._unread = unread
        self._budget_bytes = budget_bytes
        self._held_bytes = held_bytes
        self._was_short = False
        self._shut = False
        self._doors_next_s = 0.0
        """When the doors may be opened, or shut again."""
        self._gave_back_s = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory guard", daemon=True)
        self._complaints = RareLog(_log)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        looked_s = 0.0
        while not self._stopped.wait(MEMORY_LOOK_S):
            try:
                if time.monotonic() - looked_s >= self._pause_s():
                    self.look()
                    looked_s = time.monotonic()
            except Exception as error:
                self._shut_doors(False)
                looked_s = time.monotonic()
                self._complaints.warning(
                    "looking at connections failed, it goes on: %s: %s", type(error).__name__, error
                )

    def _pause_s(self) -> float:
        """Between two looks."""
        held_bytes = self._all_held_bytes()
        if held_bytes > self.short_bytes or self._shut:
            return 0.0
        return BUDGET_LOOK_S if held_bytes > self._budget_bytes else UNREAD_LOOK_S

    def _all_held_bytes(self) -> int:
        return self._held_bytes() + self._unread.kernel_bytes

    def look(self) -> None:
        """Once. Called from one thread at a time."""
        if not self._was_short and self._all_held_bytes() > self.short_bytes:
            self._shut_doors(True)  # Before the first look: that takes long.
        self._unread.look()
        held_bytes = self._all_held_bytes()
        self._was_short = held_bytes > self.short_bytes
        chosen = _largest(self._unread.clients.values(), held_bytes - self._budget_bytes) if self._was_short else []
        if self._was_short and not chosen:
            chosen = _resting(self._unread.clients.values(), time.monotonic())
        self._shut_doors(bool(chosen))  # Before anyone is hung up on: to come back takes them a millisecond.
        for one in chosen:
            self._unread.hang_up(one)
        self.ended += len(chosen)
        now_s = time.monotonic()
        if chosen:
            self._complaints.warning(
                "memory is short, %d MiB are held: %d connections end whose clients sent what is not read, do not read"
                " what is sent, or have no calls, and no new ones come for a second",
                held_bytes >> 20,
                len(chosen),
            )
        if self._was_short and now_s - self._gave_back_s > GIVE_BACK_S:
            self._gave_back_s = now_s
            give_back()

    def _shut_doors(self, shut: bool) -> None:
        """For DOORS_S at a time, and open for as long: a client's kernel tries again a second after its first attempt,
        so that a newcomer waits that second and no more, whatever goes on."""
        now_s = time.monotonic()
        if now_s < self._doors_next_s:
            return
        if self._shut or shut:
            self._shut = not self._shut and self._unread.shut_doors(True)
            if not self._shut:
                self._unread.shut_doors(False)
            self._doors_next_s = now_s + DOORS_S


def _largest(clients: Collection[Client], too_much_bytes: int) -> list[Client]:
    """Those with most that is unread or not sent: all that have more than calls can, and as many as hold so much
    together. Less is enough where many have a little each, and hold together what is too much."""
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
    """Those without calls: gRPC keeps the buffers of what they once sent. To connect again with the next call costs
    them a round trip."""
    until_s = now_s - UNREAD_ACCEPT_S
    found = (one for one in clients if one.rests_since_s < until_s and one.taken >= UNREAD_ENDED_BYTES_LEAST)
    return nlargest(RESTING_ENDED_PER_LOOK, found, key=lambda one: one.taken)


def _size_bytes(client: Client) -> int:
    now_bytes = client.unread[-1]
    unread_bytes = now_bytes if now_bytes >= UNREAD_ENDED_AT_ONCE_BYTES else client.standing
    return unread_bytes + client.standing_kernel
