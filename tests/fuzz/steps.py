"""Provides the steps of a run: what clients ask, what the node does by itself, what its disk does to it.

Each step is a name and a number. The number seeds all choices of the step, and the step chooses among what exists at
that time. So a run may be shortened by leaving steps out, and the others still make sense.
"""

from collections.abc import Callable
from random import Random

from shoal_contract.partition_hash import partition_of
from tests.fuzz.changes import (
    ack_in_change,
    again,
    away,
    bind,
    bulk,
    configure,
    declare,
    drop,
    farewell,
    one_farewell,
    publish,
    purge,
    setting,
    several,
    transaction,
    unbind,
)
from tests.fuzz.consumers import ack, ack_by_name, attach, close_session, detach, nack, open_session, pull, take
from tests.fuzz.live import publish_live
from tests.fuzz.node import Memory
from tests.fuzz.watching import end_watch, read_watch, watch, watch_turns
from tests.fuzz.world import DAY_MS, KEYS, PARTITIONS, World


def write(world: World, random: Random) -> None:
    world.node.write(random.choice((1, 2, 50)))


def refuse(world: World, random: Random) -> None:
    world.say("disk full")
    world.node.refuse(random.choice((1, 2, 50)))


def apply(world: World, random: Random) -> None:
    world.node.apply(random.choice((1, 2, 50)))


def turn(world: World, random: Random) -> None:
    world.node.turn(random.choice((1, 1, 3, 20)))


def work(world: World, random: Random) -> None:
    world.node.work(random.choice((1, 3)))


def flush(world: World, random: Random) -> None:
    world.node.node.acks.flush()


def trim(world: World, random: Random) -> None:
    world.node.node.maintenance.do("trim")


def reclaim(world: World, random: Random) -> None:
    world.node.node.maintenance.do("reclaim")


def producers(world: World, random: Random) -> None:
    world.node.node.maintenance.do("producers")


def due(world: World, random: Random) -> None:
    node = world.node.node
    node.due.wall_ms = node.trimmer.wall_ms = world.node.now_ms
    node.maintenance.do("due")


def expire(world: World, random: Random) -> None:
    world.node.expire()


def end_idle_queues(world: World, random: Random) -> None:
    world.node.end_idle_queues()
    if random.random() < 0.7:
        world.node.now_ms += 5_000
        world.node.end_idle_queues()


def say_farewells(world: World, random: Random) -> None:
    if random.random() < 0.5:
        farewell(world, random)  # It may be written before the record, and applied after the node decided.
    world.node.say_farewells()
    if random.random() < 0.7:
        world.node.now_ms += random.choice((1_000, 6_000))
        world.node.say_farewells()


def say_elsewhere(world: World, random: Random) -> None:
    """Says farewells at a key while another slice owns it: those of queues that nothing consumes become letters."""
    key = random.choice(KEYS)
    owned = bytearray(b"\x01" * PARTITIONS)
    owned[partition_of(key, PARTITIONS)] = 0
    world.own(bytes(owned))
    step = one_farewell(world, random)
    for number in range(len(step.farewells.keys)):
        step.farewells.keys[number] = key
    step.farewells.after_s = 0
    world.change(random, step)
    world.settle()
    world.node.say_farewells()
    if random.random() < 0.7:
        world.settle()
        world.own(b"\x01" * PARTITIONS)


def courier(world: World, random: Random) -> None:
    """Brings letters to other slices; some are lost on the way, and some answers."""
    letters = world.node.dispatcher.farewells.letters
    for _ in range(random.randint(1, 3)):
        letter = letters.take(world.node.now_ms)
        if letter is not None:
            world.node.owed.farewells.taken(letter)
            if random.random() < 0.6:
                letters.sent(letter)
            else:
                letters.not_sent(letter, world.node.now_ms)


def die_elsewhere(world: World, random: Random) -> None:
    """Gives messages of a queue with a bound back, while another slice owns its dead-letter key."""
    lives = [life for life in world.node.owed.lives.values() if life.options.dead_letter]
    if not lives:
        return
    dead_letter = random.choice(lives).options.dead_letter
    assert isinstance(dead_letter, bytes)
    owned = bytearray(b"\x01" * PARTITIONS)
    owned[partition_of(dead_letter, PARTITIONS)] = 0
    world.own(bytes(owned))
    world.settle()
    for _ in range(random.choice((2, 4, 6))):
        take(world, random)
        nack(world, random)
        world.node.decide_retries()
        world.settle()
        world.node.turn(5)
        world.node.wake()
    dead_letters(world, random)
    if random.random() < 0.7:
        world.own(b"\x01" * PARTITIONS)


def retries(world: World, random: Random) -> None:
    world.node.decide_retries()


def dead_letters(world: World, random: Random) -> None:
    """Brings dead letters to other slices; some are lost on the way, and some answers."""
    letters, deliveries = world.node.dispatcher.registry.returns.letters, world.node.owed.deliveries
    for _ in range(random.randint(1, 3)):
        letter = letters.take(world.node.now_ms)
        if letter is not None:
            slot = deliveries.taken(world.node.owed, letter)
            if random.random() < 0.6:
                deliveries.sent(slot)
                letters.sent(letter)
            else:
                letters.not_sent(letter, world.node.now_ms)


def delays(world: World, random: Random) -> None:
    world.node.end_delays()


def time(world: World, random: Random) -> None:
    world.node.now_ms += random.choice((1, 100, 600, 2500, 700_000, DAY_MS if random.random() < 0.1 else 1))


def divide(world: World, random: Random) -> None:
    """Also where attached queues take a little more than their share: changes rarely make so many ranges here."""
    node, attached = world.node, world.node.dispatcher.shares.attached
    attached.limit_bytes = node.memory.attached
    if attached.limit_bytes < Memory().attached and random.random() < 0.5:
        attached.limit_bytes = min(attached.limit_bytes, attached.used_bytes * random.randint(5, 9) // 10)
    node.dispatcher.divide_owed([client.session for client in node.clients.values()])
    node.dispatcher.relieve()


def freeze(world: World, random: Random) -> None:
    world.node.freeze()


def checkpoint(world: World, random: Random) -> None:
    world.node.checkpoint()


def crash(world: World, random: Random) -> None:
    if random.random() < 0.3:
        world.say("crash")
        world.node.crash(random.choice((0, 0, 1, 5)))


def own(world: World, random: Random) -> None:
    owned = bytearray(b"\x01" * PARTITIONS)
    if random.random() < 0.5:
        owned[random.randrange(PARTITIONS)] = 0
    world.say("own", owned.hex())
    world.own(bytes(owned))


def rest(world: World, random: Random) -> None:
    """Lets dispatch do all its work, and checks that this is enough."""
    for _ in range(3000):
        if not world.node.dispatcher.has_work:
            break
        world.node.turn(1)
    assert not world.node.dispatcher.has_work, "dispatch finds no rest"
    world.checks.served()
    world.watches.note_crash()
    if world.watches.open and random.random() < 0.5:
        world.settle()
        while world.node.dispatcher.has_work:
            world.node.turn(1)
        world.watches.check_told()


def look(world: World, random: Random) -> None:
    world.checks.tables()


Step = Callable[[World, Random], None]
WEIGHTS: dict[Step, int] = {
    setting: 6, away: 2, declare: 3, bind: 5, unbind: 4, publish: 10, publish_live: 1, configure: 1, drop: 1, purge: 2,
    several: 4, again: 2, bulk: 2, transaction: 8, ack_in_change: 3,
    open_session: 2, close_session: 1, attach: 6, detach: 2, pull: 3, take: 14, ack: 10, ack_by_name: 1, nack: 3,
    write: 5, refuse: 2, apply: 5, turn: 9, work: 3, flush: 5, trim: 3, reclaim: 2, producers: 1, due: 3, expire: 2,
    time: 3, delays: 2, end_idle_queues: 2, farewell: 3, say_farewells: 3, courier: 2, say_elsewhere: 2,
    divide: 3, freeze: 2, checkpoint: 2, crash: 1, own: 1, rest: 3, look: 1,
    retries: 4, dead_letters: 2, die_elsewhere: 3,
    watch: 2, read_watch: 3, end_watch: 1, watch_turns: 4,
}  # fmt: skip
