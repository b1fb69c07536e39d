"""How long a call that has one of few places waits for its client: long at best, and short while others wait for it.

Belongs here: the bound and its error. Not here: who has a place (places), how long it is (each service's limits).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf

from shoal_contract.errors import DeadlineExceeded, ResourceExhausted
from shoal_contract.places import Places


@dataclass(frozen=True, slots=True)
class ClientPatience:
    """`call`: what ends where a client keeps it waiting, as its error names it. `most_s`: how long it waits at best,
    `crowded_s`: while others wait. `retry`: what the client does then."""

    places: Places
    call: str
    most_s: float
    crowded_s: float
    retry: str = "ask again"

    @asynccontextmanager
    async def waiting(self, peer: str, does: str, spent_s: float = 0.0) -> AsyncIterator[None]:
        """Bounds what happens within. `does`: what the client does not do, as "sent". `spent_s`: what it has had of
        `crowded_s` already. Raises DeadlineExceeded after `most_s`, ResourceExhausted where others wait after
        `crowded_s`; its connection comes after others then."""
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
    """One call that has a place. While others wait it has `turn_s` in all, and its client may take `each_s` for each
    message on average, besides `crowded_s` once."""

    def __init__(self, patience: ClientPatience, peer: str, turn_s: float = inf, each_s: float = inf) -> None:
        self._patience = patience
        self._peer = peer
        self._turn_s = turn_s
        self._each_s = each_s
        self._began_s = asyncio.get_running_loop().time()
        self._spent_s = 0.0

    @asynccontextmanager
    async def waiting(self, does: str) -> AsyncIterator[None]:
        """As ClientPatience.waiting, for the next message."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        crowded = self._patience.places.crowded
        async with self._patience.waiting(self._peer, does, self._spent_s):
            yield
        if crowded and self._patience.places.crowded:  # Alone it may take its time.
            self._spent_s = max(0.0, self._spent_s + loop.time() - began_s - self._each_s)

    def check(self) -> None:
        """Raises ResourceExhausted where the turn is over and others wait. Its connection is not blamed: an honest
        client may have that much to send, and one that is not comes by a new connection."""
        held_s = asyncio.get_running_loop().time() - self._began_s
        places = self._patience.places
        if held_s > self._turn_s and places.crowded:
            raise ResourceExhausted(
                f"this {self._patience.call} had its place for {held_s:.0f} s, and others wait for it: it ends,"
                f" {self._patience.retry}",
                subject=places.what,
            )
