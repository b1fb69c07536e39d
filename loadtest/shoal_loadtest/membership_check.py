"""Checks after a run that queues chosen at random have exactly the memberships they should have."""

from __future__ import annotations

import random
from collections.abc import Set

from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.limits import CHECKED_QUEUES
from shoal_loadtest.load_session import LoadSession
from shoal_loadtest.population import Population, queue_name


async def check_memberships(
    address: str, population: Population, out: Set[int], seed: int, unknown: Set[int] = frozenset()
) -> int:
    """Returns how many queues were compared. `out`: those logged out; `unknown`: not compared. Raises BenchFailed."""
    source = random.Random(f"check {seed}")
    chosen = source.sample(range(population.queues), min(CHECKED_QUEUES, population.queues))
    chosen += source.sample(sorted(out), min(CHECKED_QUEUES, len(out)))
    numbers = [number for number in dict.fromkeys(chosen) if number not in unknown]
    request = wire.Describe(queues=[queue_name(number) for number in numbers], bindings=True)
    async with LoadSession(address) as session:
        answer = await session.ask(wire.SessionRequest(describe=request).SerializeToString())
    for number, queue in zip(numbers, answer.description.queues, strict=True):
        keys = {binding.key for binding in queue.bindings if not binding.end}
        if keys != (set() if number in out else set(population.keys_of(number))):
            raise BenchFailed(f"queue {queue.queue.decode()} has {len(keys)} memberships, or other ones")
    return len(numbers)
