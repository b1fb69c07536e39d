"""What unary calls hold: few are read at a time, connections in turn (places). One that is read and worked on has no
place any more, and no connection has more than a few of those: how long its work takes is its own affair.

Not here: reading, parsing, writing (unary).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shoal_contract.client_patience import ClientPatience
from shoal_contract.places import Places, PlacesLimits
from shoal_contract.unread import Unread
from shoal_slice_node.adapters.limits import (
    UNARY,
    UNARY_READ_CROWDED_S,
    UNARY_READ_S,
    UNARY_UNREAD_BYTES_MAX,
    UNARY_WORK_BYTES,
    UNARY_WORKED_EACH_MAX,
    UNARY_WORKING_BYTES_HIGH,
    UNARY_WORKING_BYTES_MAX,
)


class Admission:
    """`places`: of calls that are read; further ones wait unread. `patience`: with requests. `parsing`: for one large
    request in a turn of the loop."""

    def __init__(
        self, unread: Unread, others_wait: Callable[[], bool] = lambda: False, limits: PlacesLimits = UNARY
    ) -> None:
        """`unread` hears of what is read. `others_wait`: whether calls wait for memory that answers hold which are not
        read."""
        self.unread_requests = unread
        self.places = Places("unary calls", limits, self._may_be_read)
        self.patience = ClientPatience(self.places, "call", UNARY_READ_S, UNARY_READ_CROWDED_S)
        self.parsing = asyncio.Lock()
        self._others_wait = others_wait
        self._working_bytes = 0
        self._unread_bytes = 0
        """Of answers whose clients do not read them, or not yet."""
        self._worked: Counter[str] = Counter()
        """Calls that were read and are not answered, by connection."""

    @property
    def crowded_by_answers(self) -> bool:
        """A call waits for what answers hold that are not read."""
        return self.places.crowded or self._unread_bytes > UNARY_UNREAD_BYTES_MAX or self._others_wait()

    @contextmanager
    def working(self, size_bytes: int) -> Iterator[None]:
        """Until a request's answer is there: what a client can draw out is not counted."""
        size_bytes += UNARY_WORK_BYTES
        self._working_bytes += size_bytes
        try:
            yield
        finally:
            self._working_bytes -= size_bytes
            self.places.give()

    @contextmanager
    def read(self, peer: str, leave: Callable[[], None]) -> Iterator[None]:
        """From when a request was read until its answer is taken. Its call keeps no place: else few connections with
        long reads stop all others."""
        self._worked[peer] += 1
        leave()
        try:
            yield
        finally:
            self._worked[peer] -= 1
            if not self._worked[peer]:
                del self._worked[peer]
            self.places.give()

    @contextmanager
    def unread(self, size_bytes: int) -> Iterator[None]:
        """While an answer is not read."""
        size_bytes += UNARY_WORK_BYTES
        self._unread_bytes += size_bytes
        try:
            yield
        finally:
            self._unread_bytes -= size_bytes

    def _may_be_read(self, peer: str) -> bool:
        """The more is worked on, the less may be added: at first by connections that have some of it, then by all."""
        if self._working_bytes > UNARY_WORKING_BYTES_MAX:
            return False
        own = self._worked[peer] + self.places.held(peer)
        return not own or (own < UNARY_WORKED_EACH_MAX and self._working_bytes <= UNARY_WORKING_BYTES_HIGH)
