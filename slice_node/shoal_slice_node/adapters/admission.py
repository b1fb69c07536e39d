"""Bounds what unary calls hold. Few calls are read at a time, and connections take turns (places).

A call that was read gives its place back, so slow work keeps no place; one connection may have only a few such calls.

Belongs here: which call may be read next, and what calls hold. Not here: reading, parsing, writing (unary).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shoal_runtime.client_patience import ClientPatience
from shoal_runtime.places import Places, PlacesLimits
from shoal_runtime.unread import Unread
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
    """Decides which unary calls may be read, and counts what they hold. `places`: for calls that are being read;
    further calls wait unread. `patience`: bounds how long a request may take to arrive. `parsing`: held while a large
    request is parsed, so that one turn of the loop parses only one."""

    def __init__(
        self, unread: Unread, others_wait: Callable[[], bool] = lambda: False, limits: PlacesLimits = UNARY
    ) -> None:
        """`unread` is told what was read. `others_wait` says whether calls wait for memory that unread answers hold."""
        self.unread_requests = unread
        self.places = Places("unary calls", limits, self._may_be_read)
        self.patience = ClientPatience(self.places, "call", UNARY_READ_S, UNARY_READ_CROWDED_S)
        self.parsing = asyncio.Lock()
        self._others_wait = others_wait
        self._working_bytes = 0
        self._unread_bytes = 0
        """The bytes of answers that clients have not read yet."""
        self._worked: Counter[str] = Counter()
        """The number of calls that were read and are not answered yet, by connection."""

    @property
    def crowded_by_answers(self) -> bool:
        """Returns whether calls wait for what unread answers hold, or these hold more than UNARY_UNREAD_BYTES_MAX."""
        return self.places.crowded or self._unread_bytes > UNARY_UNREAD_BYTES_MAX or self._others_wait()

    @contextmanager
    def working(self, size_bytes: int) -> Iterator[None]:
        """Counts a request as being worked on until its answer is there. The time in which the client reads the answer
        is not counted here, since the client could make it long."""
        size_bytes += UNARY_WORK_BYTES
        self._working_bytes += size_bytes
        try:
            yield
        finally:
            self._working_bytes -= size_bytes
            self.places.give()

    @contextmanager
    def read(self, peer: str, leave: Callable[[], None]) -> Iterator[None]:
        """Counts a call from when its request was read until the client has its answer. The call gives its place back:
        else a few connections with long reads would stop all others."""
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
        """Counts an answer's bytes while the client has not read it."""
        size_bytes += UNARY_WORK_BYTES
        self._unread_bytes += size_bytes
        try:
            yield
        finally:
            self._unread_bytes -= size_bytes

    def _may_be_read(self, peer: str) -> bool:
        """Returns whether a call of `peer` may be read. Above UNARY_WORKING_BYTES_HIGH of requests that are worked on,
        a connection may have one call at a time; above UNARY_WORKING_BYTES_MAX no call is read."""
        if self._working_bytes > UNARY_WORKING_BYTES_MAX:
            return False
        own = self._worked[peer] + self.places.held(peer)
        return not own or (own < UNARY_WORKED_EACH_MAX and self._working_bytes <= UNARY_WORKING_BYTES_HIGH)
