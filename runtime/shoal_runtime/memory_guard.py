"""Ends connections where a process holds too much memory, or where a port of gRPC has nearly as many as it takes: the
last resort for what no account covers, because gRPC or the kernel holds it for a connection.

Belongs here: when connections end, and what is said of it. Not here: which ones end first (endings).

It runs in its own thread. gRPC's threads can add half a gigabyte a second, also while the event loop is busy for
seconds; but gRPC frees memory only through the loop.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from random import Random

from shoal_runtime.endings import (
    by_share,
    crowding,
    estimated_bytes,
    largest,
    new_holders,
    ordinary_new_bytes,
    resting,
    size_bytes,
)
from shoal_runtime.growth import Growth
from shoal_runtime.limits import (
    BUDGET_LOOK_S,
    COLLECT_S,
    DOORS_S,
    FUTILE_PARTS,
    GIVE_BACK_S,
    KERNEL_PARTS,
    LOOK_SHARE,
    LOOK_SHARE_GROWS,
    LOOK_SHARE_HURRIED,
    MEMORY_LOOK_S,
    NEW_GREW_PARTS,
    NEW_S,
    SHARE_FALL_S,
    SHARE_FELL_PARTS,
    SHARE_FUTILE_PARTS,
    SHARE_GREW_PARTS,
    SHARE_PUT_OFF_S,
    SHARE_RESTS_S,
    SHARE_WAIT_S,
    UNKNOWN_TOLD_PER_S,
    UNREAD_LOOK_S,
)
from shoal_runtime.process_memory import give_back, own_bytes
from shoal_runtime.rare_log import RareLog
from shoal_runtime.unread import Client, Unread

_log = logging.getLogger(__name__)


class MemoryGuard:
    """Looks at the process's memory, and ends connections while it is short. `budget_bytes`: what the process should
    hold. `short_bytes`: above this, memory is short; the guard's owner raises it for memory that stays. `chance`: draws
    where connections end by chance; None: one of its own. `grew_bytes_max`: what a process may grow by within NEW_S
    before new connections end on which much came, though memory is not short.

    While memory is short, connections end until the process is back at its budget: `_chosen` says which. New
    connections are kept from the ports of `unread` for a moment, because a client comes back sooner than its memory is
    free. What the kernel holds for connections counts too, as it does for a container's limit, but only beyond what
    slow clients have there at all times. The counted sizes may differ from the memory really held, so each look starts
    from what is held at that time. Where all connections together hold little of the excess, none ends, and the log
    says that something else holds it.

    New connections end first where the process grew: until a client acknowledges gRPC's settings, its headers have no
    bound, and gRPC holds many times what came. Where a port is nearly full, connections without calls end until there
    is room for new ones."""

    def __init__(
        self,
        unread: Unread,
        budget_bytes: int,
        short_bytes: int,
        held_bytes: Callable[[], int] = own_bytes,
        chance: Random | None = None,
        grew_bytes_max: int = sys.maxsize,
    ) -> None:
        self.short_bytes = short_bytes
        self.ended = 0
        """The number of connections ended for memory since the start."""
        self.ended_for_room = 0
        """The number of connections ended since the start because their port was nearly full."""
        self.unknown_bytes = 0
        """The memory above the budget that no connection accounts for, at the last look; 0 if memory was not short."""
        self._unread = unread
        self._budget_bytes = budget_bytes
        self._short_at_first_bytes = short_bytes
        self._held_bytes = held_bytes
        self._was_short = False
        self._shut = False
        self._doors_next_s = 0.0
        """The time when the ports may be opened, or shut again, in seconds of time.monotonic."""
        self._gave_back_s = self._collected_s = 0.0
        self._random = chance or Random()
        self._short_since_s = 0.0
        """When memory was last not short, in seconds of time.monotonic."""
        self._by_share_next_s = 0.0
        self._by_share_rests_until_s = 0.0
        self._by_share_fell_bytes = self._by_share_grew_bytes = 0
        """When clients may be chosen by their share again, in seconds of time.monotonic: the memory of the last ones is
        free by then. Until the second time only if less is held than the first number of bytes, or more than the
        second: otherwise their end freed nothing."""
        self._grew_bytes_max = grew_bytes_max
        self._growth = Growth(NEW_S)
        self._fall = Growth(SHARE_FALL_S)
        """How much less is held: it has the negative of what is held."""
        self._crowded = False
        """True if a port was nearly full at the last look."""
        self._took_s = 0.0
        """The processor time that the last look took, in seconds."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory guard", daemon=True)
        self._complaints = RareLog(_log)
        self._unknown = RareLog(_log, UNKNOWN_TOLD_PER_S)
        self._full = RareLog(_log)
        self._grew = RareLog(_log)

    @property
    def connections(self) -> int:
        """Returns the number of clients found at the last look, which have nearly always one connection each."""
        return len(self._unread.clients)

    @property
    def connections_max(self) -> int:
        return sum(self._unread.ports.values())

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
        grew_bytes = self._growth.add(time.monotonic(), held_bytes)
        if held_bytes + self._kernel_bytes() > self.short_bytes or self._shut:
            return 0.0
        if self._crowded or held_bytes + self._kernel_bytes(self._unread.sent_bytes) > self.short_bytes:
            return LOOK_SHARE_HURRIED * self._took_s
        if grew_bytes > self._grew_bytes_max:
            return LOOK_SHARE_GROWS * self._took_s
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
        if not self._was_short:
            self._short_since_s = time.monotonic()
        chosen: Sequence[Client] = ()
        if self._was_short:
            stays_bytes = max(0, self.short_bytes - self._short_at_first_bytes)
            too_much_bytes = held_bytes - stays_bytes - self._budget_bytes
            chosen = self._chosen(self._unread.clients.values(), too_much_bytes, held_bytes)
        else:
            self.unknown_bytes = 0
            chosen = self._new_holders(self._unread.clients.values(), 0, self._grew_bytes_max)
        self._shut_doors(bool(chosen))  # Before connections end: a client comes back within a millisecond.
        ended = self._end(chosen)
        self.ended += ended
        self._make_room(already_ended=bool(chosen))
        now_s = time.monotonic()
        if ended and self._was_short:
            self._complaints.warning(
                "memory is short: %d MiB are held, and the budget is %d. %d connections that hold some of it end,"
                " and no new ones are taken for a second; their clients connect again. If this comes often, give the"
                " process more memory, or look for a client that does not read",
                *(held_bytes >> 20, self._budget_bytes >> 20, ended),
            )
        if self._was_short and now_s - self._gave_back_s > GIVE_BACK_S:
            self._gave_back_s = now_s
            give_back()
        if self.unknown_bytes and now_s - self._collected_s > COLLECT_S:
            self._collected_s = now_s
            gc.collect()  # It may be in circles that nothing names.

    def _new_holders(self, clients: Collection[Client], too_much_bytes: int, grew_bytes_max: int) -> Sequence[Client]:
        """Returns new clients whose connections end, where the process grew lately by `grew_bytes_max` more than
        by ordinary clients: clients that do not acknowledge gRPC's settings may hold far more than they sent."""
        now_s, held_bytes = time.monotonic(), self._held_bytes()
        grew_bytes = self._growth.add(now_s, held_bytes) - ordinary_new_bytes(clients, now_s)
        if grew_bytes <= grew_bytes_max:
            return ()
        chosen = new_holders(clients, min(too_much_bytes, grew_bytes), now_s)
        if chosen:
            self._growth.begin(now_s, held_bytes)
            self._grew.warning(
                "memory grew by %d MiB within %.0f s, to %d MiB. %d new connections end that sent more than their calls"
                " took, or whose calls were not begun yet: gRPC may hold far more for them than they sent. Their"
                " clients connect again. If this comes often, look for a client that sends very many headers",
                *(grew_bytes >> 20, NEW_S, held_bytes >> 20, len(chosen)),
            )
        return chosen

    def _chosen(self, clients: Collection[Client], too_much_bytes: int, held_bytes: int) -> Sequence[Client]:
        """Returns the clients whose connections end now. Those come first that may hold far more than they sent, then
        those of which it is known that they hold much: unread or unsent bytes. Then come those without calls: a new
        connection costs them a round trip. What the others hold is an estimate, so some of them end by chance, each
        with its share."""
        estimated = sum(map(estimated_bytes, clients))
        known_bytes = estimated + sum(map(size_bytes, clients))
        self.unknown_bytes = max(0, too_much_bytes - known_bytes)
        new = self._new_holders(clients, too_much_bytes, self._budget_bytes // NEW_GREW_PARTS)
        if not new and known_bytes < too_much_bytes // FUTILE_PARTS:
            self._tell_unknown(too_much_bytes, known_bytes, len(clients))
            return ()
        now_s = time.monotonic()
        idle = [one for one in clients if not one.calls]
        chosen = new or largest(clients, too_much_bytes) or resting(idle, too_much_bytes, now_s)
        if chosen:
            put_off_s = min(now_s + SHARE_WAIT_S, self._short_since_s + SHARE_PUT_OFF_S)
            self._by_share_next_s = max(self._by_share_next_s, put_off_s)
        fell_bytes = self._fall.add(now_s, -held_bytes)
        if chosen or now_s < self._by_share_next_s:
            return chosen
        if fell_bytes > self._budget_bytes // SHARE_FELL_PARTS:
            return ()  # It is becoming free.
        if sum(map(estimated_bytes, idle)) > too_much_bytes // SHARE_FUTILE_PARTS:
            return ()  # They hold enough, and end as soon as it is known that no call waits to be begun.
        if estimated < too_much_bytes // SHARE_FUTILE_PARTS:
            self._tell_unknown(too_much_bytes, known_bytes, len(clients))
            return ()  # Sessions that do nothing are no reason: something else holds the memory.
        in_vain = self._by_share_fell_bytes < held_bytes < self._by_share_grew_bytes
        if in_vain and now_s < self._by_share_rests_until_s:
            return ()
        self._by_share_next_s = now_s + SHARE_WAIT_S
        self._by_share_rests_until_s = now_s + SHARE_RESTS_S
        self._by_share_fell_bytes = held_bytes - self._budget_bytes // SHARE_FELL_PARTS
        self._by_share_grew_bytes = held_bytes + self._budget_bytes // SHARE_GREW_PARTS
        return by_share(clients, too_much_bytes, self._random)

    def _tell_unknown(self, too_much_bytes: int, known_bytes: int, connections: int) -> None:
        self._unknown.warning(
            "memory is short, and no connection ends for it: %d MiB are too much, and the %d connections hold about %d."
            " Something else holds the memory: calls that wait in gRPC's line, or the process itself. If it stays, give"
            " the process more memory, or look for a client that begins very many calls",
            *(too_much_bytes >> 20, connections, known_bytes >> 20),
        )

    def _make_room(self, already_ended: bool) -> None:
        """Ends connections without calls where a port is nearly full, unless some ended just now for memory."""
        crowded = crowding(self._unread.clients.values(), self._unread.ports, time.monotonic())
        self._crowded = bool(crowded)
        for port, clients in crowded.items():
            if already_ended:
                continue
            ended = self._end(clients)
            self.ended_for_room += ended
            self._full.warning(
                "port %d is nearly full: it takes %d connections. %d that have no call end now, the oldest first; their"
                " clients connect again when they call. If this comes often, look for a client that opens very many"
                " connections, or let the process take more (open files of a slice node, memory of a redirector)",
                *(port, self._unread.ports[port], ended),
            )

    def _end(self, clients: Collection[Client]) -> int:
        """Hangs up on clients. Returns how many were not ended before: gRPC may close a connection some looks later."""
        new = [one for one in clients if not one.ended]
        for one in clients:
            self._unread.hang_up(one)
            one.ended = True
        return len(new)

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
