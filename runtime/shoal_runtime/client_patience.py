"""Bounds how long a call that has a place waits for its client: long at best, and short while others wait for places.

Belongs here: the bound and its error. Not here: which calls have one (places), how long it is (each service's limits).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf

from shoal_contract.errors import DeadlineExceeded, ResourceExhausted
from shoal_runtime.places import Places


@dataclass(frozen=True, slots=True)
class ClientPatience:
    """Bounds the waits for clients of one kind of call. `call`: the name in the error of what ends where a client keeps
    it waiting. `most_s`: the seconds that a call waits at best; `crowded_s`: while others wait. `retry`: what the
    client should do then."""

    places: Places
    call: str
    most_s: float
    crowded_s: float
    retry: str = "ask again"

    @asynccontextmanager
    async def waiting(self, peer: str, does: str, spent_s: float = 0.0) -> AsyncIterator[None]:
        """Bounds the code within the context. `does`: what the client did too little of, as "sent". `spent_s`: the part
        of `crowded_s` that is used up already. Raises DeadlineExceeded after `most_s`; where others wait,
        ResourceExhausted after `crowded_s`. The connection comes after others then."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with self.places.patience(peer, self.most_s, self.crowded_s - spent_s):
                yield
            self.places.praise(peer)
        except TimeoutError:
            waited_s = loop.time() - began_s
            self.places.blame(peer, waited_s >= self.crowded_s - spent_s)
            what = "too little, by" if spent_s > 0 else "nothing for"
            text = f"the client {does} {what} {spent_s + waited_s:.1f} s"
            ends = f"its {self.call} ends, {self.retry}"
            if waited_s < self.most_s:
                text += f", and others wait for its place: {ends}"
                raise ResourceExhausted(text, subject=self.places.what) from None
            raise DeadlineExceeded(f"{text}: {ends}", subject=self.call) from None


class Turn:
    """Bounds one call that has a place. While others wait, the call has `turn_s` in all, and its client may take
    `each_s` for each message on average, besides `crowded_s` once."""

    def __init__(self, patience: ClientPatience, peer: str, turn_s: float = inf, each_s: float = inf) -> None:
        self._patience = patience
        self._peer = peer
        self._turn_s = turn_s
        self._each_s = each_s
        self._began_s = asyncio.get_running_loop().time()
        self._spent_s = 0.0

    @asynccontextmanager
    async def waiting(self, does: str) -> AsyncIterator[None]:
        """Does as ClientPatience.waiting, for the next message."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        crowded = self._patience.places.crowded
        async with self._patience.waiting(self._peer, does, self._spent_s):
            yield
        if crowded and self._patience.places.crowded:  # If no other waits, the client may take its time.
            self._spent_s = max(0.0, self._spent_s + loop.time() - began_s - self._each_s)

    def check(self) -> None:
        """Raises ResourceExhausted where the turn is over and others wait. The connection is not blamed: an honest
        client may have that much to send, and a dishonest one comes back with a new connection."""
        held_s = asyncio.get_running_loop().time() - self._began_s
        places = self._patience.places
        if held_s > self._turn_s and places.crowded:
            raise ResourceExhausted(
                f"this {self._patience.call} had its place for {held_s:.0f} s, and others wait for it: it ends,"
                f" {self._patience.retry}",
                subject=places.what,
            )
