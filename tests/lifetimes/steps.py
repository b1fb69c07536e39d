"""Does one random step of a run. Each step takes all its choices from its own random numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from shoal_contract.options import QueueOptions
from tests.lifetimes.told import Run
from tests.lifetimes.world import DEAD, KEYS, NAMES, PAST, Start

Step = Callable[[Run, Random], None]


def declares(world: Run, random: Random) -> None:
    most = random.choice((0, 0, 1, 2, 3))
    options = QueueOptions(
        expires_after_s=random.choice((0, 0, 3, 6)),
        ack_timeout_ms=random.choice((0, 0, 700, 1500)),
        max_deliveries=most,
        dead_letter=random.choice((DEAD, DEAD, "")) if most else "",
        exclusive=random.choice(("none", "newest", "newest")),
    )
    start = random.choice((Start(), Start(messages=random.choice((0, 1, 5))), Start(age_ms=random.choice((100, 1500)))))
    world.declare(random.choice(NAMES), options, random.sample(list(KEYS), 2), start)


def publishes(world: Run, random: Random) -> None:
    world.publish(random.choice(list(KEYS)), random.choice((1, 1, 3)), random.choice((0, 0, 300, 800, 2500)))


def publishes_later(world: Run, random: Random) -> None:
    for _ in range(random.choice((1, 2, 4))):
        after_ms, ttl_ms = random.choice((0, 300, 300, 2500)), random.choice((0, 0, 300, 2500))
        world.publish_later(after_ms, random.choice((1, 1, 3)), ttl_ms)


def opens(world: Run, random: Random) -> None:
    if len(world.sessions) < 3:
        world.open()


def closes(world: Run, random: Random) -> None:
    if len(world.sessions) > 1:
        world.close(random.choice(world.sessions))


def attaches(world: Run, random: Random) -> None:
    if world.model.queues:
        queue = random.choice(list(world.model.queues))
        world.attach(random.choice(world.sessions), queue, random.choice((1, 3, 100, 100)))


def detaches(world: Run, random: Random) -> None:
    world.detach(random.choice(world.sessions), random.choice(NAMES))


def reads(world: Run, random: Random) -> None:
    world.take(random.choice(world.sessions))


def reads_late(world: Run, random: Random) -> None:
    world.late_read(random.choice(world.sessions))


def acks(world: Run, random: Random) -> None:
    world.ack(random.choice(world.sessions), random)
    if random.random() < 0.3:
        world.flush()


def gives_back(world: Run, random: Random) -> None:
    world.nack(random.choice(world.sessions), random, random.choice((0, 0, 400, 2000)), random.random() < 0.3)


def sets(world: Run, random: Random) -> None:
    if world.model.queues:
        name = random.choice(list(world.model.queues))
        if random.random() < 0.2:
            world.take_back(name)
        else:
            world.set_farewell(name, random.choice((0, 1, 2, 5)))


def sets_late(world: Run, random: Random) -> None:
    """Sets a farewell, lets it become due, and sets it anew in the very tick that says it."""
    left = [name for name in world.model.queues if not world.model.options_of(name).expires_after_s]
    left = [name for name in left if not world.consumers(name)]
    if left:
        name, after_s = random.choice(left), random.choice((0, 1, 2))
        world.set_farewell(name, after_s)
        for _ in range(2 * after_s):
            world.tick()
        world.late_farewell(name, random.choice((1, 3)), random.random() < 0.5)


def ticks(world: Run, random: Random) -> None:
    for _ in range(random.choice((1, 1, 2, 8))):
        world.tick(random.choice((20, 100, 500)))


def sets_the_clock(world: Run, random: Random) -> None:
    world.jump(random.choice((-700, 0, 0, 400)))


def loses_a_tick(world: Run, random: Random) -> None:
    world.lost_tick()


def freezes(world: Run, random: Random) -> None:
    world.core.freeze()


def makes_a_checkpoint(world: Run, random: Random) -> None:
    if random.random() < 0.2:
        world.core.melt()
    else:
        world.core.checkpoint()


def describes(world: Run, random: Random) -> None:
    if world.model.queues:
        world.describe(random.choice(list(world.model.queues)))


def crashes(world: Run, random: Random) -> None:
    world.crash(random)


def crashes_in_a_tick(world: Run, random: Random) -> None:
    world.crash_in_tick(random)


def crashes_in_a_publish(world: Run, random: Random) -> None:
    bodies, ttl_ms = random.choice((1, 1, 3)), random.choice((0, 0, 800))
    world.crash_in_publish(random.choice(("plain", "few", PAST)), bodies, ttl_ms, random)


WEIGHTS: dict[Step, int] = {
    declares: 6,
    publishes: 20,
    publishes_later: 5,
    opens: 3,
    closes: 3,
    attaches: 10,
    detaches: 5,
    reads: 14,
    reads_late: 5,
    acks: 9,
    gives_back: 8,
    sets: 10,
    sets_late: 4,
    ticks: 14,
    sets_the_clock: 2,
    loses_a_tick: 4,
    describes: 8,
    freezes: 4,
    makes_a_checkpoint: 4,
    crashes: 1,
    crashes_in_a_tick: 3,
    crashes_in_a_publish: 1,
}
"""Each step, and how often it is done among the others."""
