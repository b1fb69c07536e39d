"""Votes: many counters share one queue, and each vote counts exactly once.

A message goes to one consumer at a time. What a consumer had and did not ack comes again to another one, so a counter
that dies loses nothing. What it had counted and not acked comes twice; (key, offset) never names two messages, so the
count leaves out what it has already.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import shoal

VOTES = 3_000
BALLOTS = [b"red", b"green", b"green", b"blue", b"green"]
Place = tuple[str, int]


async def count(at: str, counted: dict[Place, str], dies_after: int = 0) -> None:
    """Counts votes until all are counted. With `dies_after` it ends after so many votes, without an ack for any."""
    async with shoal.connect(at) as broker, broker.consume("poll", window_messages=200) as inbox:
        while len(counted) < VOTES:
            try:
                async with asyncio.timeout(0.5):
                    vote = await anext(aiter(inbox))
            except TimeoutError:
                continue  # The others may have the rest.
            counted[vote.key, vote.offset] = vote.body.decode()
            if dies_after:
                dies_after -= 1
                if not dies_after:
                    return
            else:
                await vote.ack()


async def main(at: str) -> None:
    async with shoal.connect(at) as broker:
        await broker.declare("poll")
        await broker.bind("poll", "votes")
        await broker.purge("poll")  # Votes that an earlier run left, if it was interrupted.
        counted: dict[Place, str] = {}
        counters = [count(at, counted), count(at, counted), count(at, counted, dies_after=50)]
        votes = [await broker.publish_soon("votes", BALLOTS[number % len(BALLOTS)]) for number in range(VOTES)]
        await asyncio.gather(*votes, *counters)
        for ballot, number in Counter(counted.values()).most_common():
            print(f"{ballot}: {number}")
        await broker.drop("poll")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:7400"))
