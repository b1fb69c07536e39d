"""How long a stream that has one of few places waits for its client: long at best, and short while others wait for it.

Belongs here: the bound and its error. Not here: who has a place (contract/places), how long it is (limits).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from shoal_contract.errors import DeadlineExceeded, ResourceExhausted
from shoal_contract.places import Places


@dataclass(frozen=True, slots=True)
class ClientPatience:
    """`stream`: what ends where a client keeps it waiting, as its error names it. `retry`: what the client does then,
    as "ask again"."""

    places: Places
    stream: str
    retry: str

    @asynccontextmanager
    async def waiting(self, peer: str, does: str, most_s: float, crowded_s: float) -> AsyncIterator[None]:
        """Bounds what happens within. `does`: what the client does not do, as "sent". Raises DeadlineExceeded after
        `most_s`, ResourceExhausted where others wait after `crowded_s`; its connection comes after others then."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with self.places.patience(most_s, crowded_s):
                yield
        except TimeoutError:
            self.places.blame(peer)
            waited_s = loop.time() - began_s
            text = f"the client {does} nothing for {waited_s:.1f} s"
            ends = f"its {self.stream} ends, {self.retry}"
            if waited_s < most_s:
                text += f", and others wait for its place: {ends}"
                raise ResourceExhausted(text, subject=self.places.what) from None
            raise DeadlineExceeded(f"{text}: {ends}", subject=self.stream) from None
