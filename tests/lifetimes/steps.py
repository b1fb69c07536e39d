"""Does one random step of a run. Each step takes all its choices from its own random numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from shoal_contract.options import QueueOptions
from tests.lifetimes.world import KEYS, NAMES, World

Step = Callable[[World, Random], None]


def declares(world: World, random: Random) -> None:
    options = QueueOptions(
        expires_after_s=random.choice((0, 0, 3, 6)), exclusive=random.choice(("none", "newest", "newest"))
    )
    world.declare(random.choice(NAMES), options, random.sample(list(KEYS), 2))


def publishes(world: World, random: Random) -> None:
    world.publish(random.choice(list(KEYS)), random.choice((1, 1, 3)), random.choice((0, 0, 300, 800, 2500)))


def opens(world: World, random: Random) -> None:
    if len(world.sessions) < 3:
        world.open()


def closes(world: World, random: Random) -> None:
    if len(world.sessions) > 1:
        world.close(random.choice(world.sessions))


def attaches(world: World, random: Random) -> None:
    if world.model.queues:
        world.attach(random.choice(world.sessions), random.choice(list(world.model.queues)))


def detaches(world: World, random: Random) -> None:
    world.detach(random.choice(world.sessions), random.choice(NAMES))


def reads(world: World, random: Random) -> None:
    world.take(random.choice(world.sessions))


def reads_late(world: World, random: Random) -> None:
    world.late_read(random.choice(world.sessions))


def acks(world: World, random: Random) -> None:
    world.ack(random.choice(world.sessions), random)
    if random.random() < 0.3:
        world.core.flush()


def sets(world: World, random: Random) -> None:
    if world.model.queues:
        name = random.choice(list(world.model.queues))
        if random.random() < 0.2:
            world.take_back(name)
        else:
            world.set_farewell(name, random.choice((0, 1, 2, 5)))


def sets_late(world: World, random: Random) -> None:
    """Sets a farewell, lets it become due, and sets it anew in the very tick that says it."""
    left = [name for name, queue in world.model.queues.items() if not queue.expires_after_s]
    left = [name for name in left if not world.is_consumed(name)]
    if left:
        name, after_s = random.choice(left), random.choice((0, 1, 2))
        world.set_farewell(name, after_s)
        for _ in range(2 * after_s):
            world.tick()
        world.late_farewell(name, random.choice((1, 3)), random.random() < 0.5)


def ticks(world: World, random: Random) -> None:
    for _ in range(random.choice((1, 1, 2, 8))):
        world.tick(random.choice((20, 100, 500)))


def loses_a_tick(world: World, random: Random) -> None:
    world.lost_tick()


def crashes(world: World, random: Random) -> None:
    world.crash()


WEIGHTS: dict[Step, int] = {
    declares: 6,
    publishes: 20,
    opens: 3,
    closes: 3,
    attaches: 10,
    detaches: 5,
    reads: 14,
    reads_late: 5,
    acks: 9,
    sets: 10,
    sets_late: 4,
    ticks: 14,
    loses_a_tick: 2,
    crashes: 2,
}
"""Each step, and how often it is done among the others."""
