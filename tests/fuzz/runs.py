"""Does one run of the fuzzer: everything about it follows from its seed. Shrinks and reports a run that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.rows.small_rows import ACKS_CUT
from tests.fuzz import consumers, small_limits, steps
from tests.fuzz.changes import setting
from tests.fuzz.node import Client, Memory, Node
from tests.fuzz.steps import WEIGHTS, Step
from tests.fuzz.world import KEYS, PARTITIONS, World
from tests.fuzzing import Failure, fewer_steps, report_of

STEPS = (40, 120)
ROUNDS_MAX = 1500
"""The number of rounds at the end of a run within which everything that is owed must have come."""


class Plan(NamedTuple):
    """The plan of a run. `steps`: each with the number that seeds its choices. `stays`: the run's own consumers finish
    it, not new ones."""

    limits: dict[str, int]
    memory: Memory
    prompt: float
    stays: bool
    options: int
    steps: list[tuple[Step, int]]


def plan(seed: int) -> Plan:
    random = Random(seed)
    limits = small_limits.choose(seed)
    small = Memory(random.choice((1500, 6000)), random.choice((6000, 20_000)), random.choice((120, 1000)))
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    chosen = random.choices(kinds, weights, k=random.randint(*STEPS))
    return Plan(
        limits,
        Memory(*(random.choice((full, few)) for full, few in zip(Memory(), small, strict=True))),
        random.choice((1.0, 0.7, 0.3)),
        random.random() < 0.6,
        random.getrandbits(16),
        [(setting, random.getrandbits(32)), *((step, random.getrandbits(32)) for step in chosen)],
    )


def attempt(
    found: Plan, only: Sequence[int] | None = None, then: Callable[[World], None] | None = None
) -> Failure | None:
    """Runs a plan, or only some of its steps; then `then`, which is told the world. Returns how it failed, or None."""
    world = None
    where = "the start"
    chosen = range(len(found.steps)) if only is None else only
    try:
        with small_limits.patched(found.limits):
            world = World(Node(found.memory), found.prompt, "PURGE_BINDINGS_MAX" in found.limits, found.options)
            for number in chosen:
                step, seed = found.steps[number]
                where = f"step {number}, {step.__name__}"
                world.say(f"[{number} {step.__name__}]")
                step(world, Random(seed))
                world.node.wake()
                world.check_answers()
                world.checks.gave()
                world.checks.sound()
            where = "the end"
            world.say("[end]")
            finish(world, found.stays)
            world.check_answers()
            if then is not None:
                where = "what comes then"
                then(world)
    except Exception as error:
        return Failure(where, error, str if world is None else world.told)
    return None


# The end of a run.


def finish(world: World, stays: bool) -> None:
    """Checks that everything that is owed comes and is acked, and that nothing is left anywhere then."""
    node = world.node
    world.own(b"\x01" * PARTITIONS)
    for client in list(node.clients.values()):
        client.lazy = False
        # What was pulled without a lease comes again when its session ends; a stopped handle gets nothing more.
        if not stays or client.session.pullers or client.stopped:
            node.close(client)
    world.settle()
    node.memory = Memory()
    node.dispatcher.shares.attached.limit_bytes = 1 << 40
    world.watches.note_crash()
    while node.dispatcher.has_work:
        node.turn(50)
    world.watches.check_told()
    world.watches.end_all()
    _until(world, lambda: [*node.owed.delayed.waiting, *node.owed.farewells.letters])
    lives = node.owed.lives.values()
    _until(world, lambda: [(life.name, key, todo) for life in lives for key, todo in life.todo.items() if todo])
    world.checks.tables()
    world.change(Random(0), wire.Step(configures=wire.Configures(keys=KEYS)))
    world.settle()
    _until(world, lambda: [*node.tables.log.scan(), *filter(None, [node.state.kept.messages])])
    world.change(Random(0), wire.Step(drops=wire.Drops(queues=list(node.owed.lives))))
    world.settle()
    for client in list(node.clients.values()):
        node.close(client)
    _until(world, lambda: _left(world))
    world.checks.tables()


def _until(world: World, left: Callable[[], Sequence[object]]) -> None:
    for number in range(ROUNDS_MAX):
        if not left():
            return
        _round(world, Random(number))
        world.checks.gave()
        if number % 8 == 0:
            world.checks.sound()
    raise AssertionError(f"left for ever: {left()}")


def _round(world: World, random: Random) -> None:
    """Lets all clients read and ack, and the node do its maintenance."""
    node = world.node
    missing = [name for name in node.owed.lives if not _attached(world, name)]
    if missing:
        client = node.open(1 << 20, lazy=False)
        request = wire.Attach(queues=missing[:1], handles=[1])
        consumers.read(world, client, requests.attach(node.node, client.session, request), random)
    node.turn(50)
    node.wake()
    for client in list(node.clients.values()):
        _read_and_ack(world, client, random)
    node.now_ms += 600
    node.expire()
    node.end_delays()
    node.decide_retries()
    steps.dead_letters(world, random)
    steps.divide(world, random)
    node.node.acks.flush()
    steps.trim(world, random)
    steps.reclaim(world, random)
    steps.due(world, random)
    steps.courier(world, random)
    node.say_farewells()
    node.end_idle_queues()
    if random.random() < 0.3:
        node.checkpoint()
        node.freeze()
    world.settle()


def _attached(world: World, name: bytes) -> bool:
    return any(name in client.session.by_queue for client in world.node.clients.values())


def _read_and_ack(world: World, client: Client, random: Random) -> None:
    for _ in range(6):
        consumers.take(world, random, client)
    held = consumers.held_by(world, client)
    acks = []
    for name, handle, key, offsets in held:
        names: dict[str, Any] = {"queues": [name]} if handle is None else {"handles": [handle]}
        acks += [wire.Ack(key=key, low=offset, to=offset + 1, **names) for offset in offsets[:9]]
    if acks:
        consumers.send_acks(world, client, acks)


def _left(world: World) -> list[str]:
    """Returns the rows, feeds, watches and counted bytes that are left. Notes for acks on their way do not count: they
    go with the next ones."""
    node = world.node
    dispatcher = node.dispatcher
    registry, shares = dispatcher.registry, dispatcher.shares
    names = ["key", "key_name", "queue", "queue_by_name", "membership", "detail", "binding", "ended", "log", "farewell"]
    tables = [name for name in names if any(getattr(node.tables, name).scan())]
    counted = {
        "local_hints": [*node.tables.local_hints.scan()],
        "reclaim": [row_key for row_key, _ in node.tables.reclaim.scan() if row_key[:1] != ACKS_CUT],
        "feeds": dispatcher.feeds,
        "watches": dispatcher.by_key,
        "awaited": registry.awaited,
        "acks": dispatcher.acks.waiting,
        "work": dispatcher.has_work,
        "deliveries": shares.deliveries.used_bytes,
        "attached": shares.attached.used_bytes,
        "holding": shares.holding,
        "owed": node.shared.owed,
    }
    return tables + [name for name, value in counted.items() if value]


# Shrinking and reporting a failure.


def shrink(found: Plan, seconds: float = 20) -> tuple[Plan, list[int]]:
    """Leaves out steps, and then small limits, as long as the run still fails. Returns the shorter plan and the numbers
    of its steps."""
    until = time.monotonic() + seconds
    kept = fewer_steps(len(found.steps), lambda fewer: attempt(found, fewer) is not None, seconds)
    for name in found.limits:
        without = {other: value for other, value in found.limits.items() if other != name}
        if time.monotonic() < until and attempt(found._replace(limits=without), kept) is not None:
            found = found._replace(limits=without)
    return found, kept


def report(seed: int, found: Plan) -> str:
    """Returns the report of a failed run: the shortest run found that fails, and how to repeat it."""
    shorter, kept = shrink(found)
    failure = attempt(shorter, kept)
    limits = ",".join(f"{name}={value}" for name, value in shorter.limits.items())
    head = "" if failure is None else f"{failure.told()}\n{found.memory}, stays {found.stays}"
    return report_of(failure, head, f"tests.fuzz {seed} --limits '{limits}' --steps {','.join(map(str, kept))}")
