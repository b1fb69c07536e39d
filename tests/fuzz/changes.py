"""Provides the steps that ask for changes: declare, bind, unbind, publish, ack, drop, purge, import,
farewell; transactions."""

from random import Random

from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Exclusive
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import ChangeHead, Kind, encode_change
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.verbs.changes import parse_import
from tests.fuzz.world import KEYS, QUEUES, World, body, pick_client


def one_declare(world: World, random: Random) -> wire.Step:
    some = random.sample(QUEUES, random.choice((1, 1, 2)))
    step = wire.Declares(queues=some)
    step.options.CopyFrom(world.terms(some[0]))
    if random.random() < 0.1:
        step.options.expires_after_s = 0 if step.options.expires_after_s else 5
    if random.random() < 0.05:
        step.options.exclusive = random.choice((Exclusive.EXCLUSIVE_NEWEST, Exclusive.EXCLUSIVE_OLDEST))
    if random.random() < 0.25:
        lives = [world.node.owed.lives.get(name) for name in some]
        old = [life.incarnation if life else 0 for life in lives]
        at_home = [world.node.owed.owns(b"@" + name) for name in some]
        step.incarnations.extend(
            number - random.randint(0, 1) * bool(number) if home else random.choice((0, number, 5 << 40, 6 << 40))
            for number, home in zip(old, at_home, strict=True)
        )
    return wire.Step(declares=step)


def one_bind(world: World, random: Random) -> wire.Step:
    start = random.choice((0, 0, 0, *wire.Start.values()))
    step = wire.Binds(start=wire.Start.ValueType(start), start_value=random.randint(0, 4) if start > 1 else 0)
    if start == wire.START_AGE:
        step.start_value = random.randint(0, 3_000)
    for name in random.sample(QUEUES, random.choice((1, 1, 2))):
        keys = random.choices(KEYS, k=random.choice((1, 2, 4)))
        if start == wire.START_OFFSET and keys[0] in world.node.owed.keys:
            step.start_value = max(0, world.node.owed.keys[keys[0]].head - random.randint(-1, 6))
        step.queues.append(name)
        step.key_counts.append(len(keys))
        step.keys.extend(keys)
    return wire.Step(binds=step)


def one_unbind(world: World, random: Random) -> wire.Step:
    keys = random.sample(KEYS, random.choice((1, 2, 4)))
    step = wire.Unbinds(queues=[random.choice(QUEUES)], key_counts=[len(keys)], keys=keys)
    step.discard = random.random() < 0.3
    return wire.Step(unbinds=step)


def one_publish(world: World, random: Random) -> wire.Step:
    direct = [b"@" + name for name in QUEUES]
    step = wire.Publishes(mandatory=random.random() < 0.2)
    if random.random() < 0.15:
        step.not_before_ms = world.node.now_ms + random.choice((-700, 1, 600, 2_000))
    for _ in range(random.choice((1, 1, 3))):
        step.keys.append(random.choice(KEYS + KEYS if random.random() < 0.8 else direct))
        step.chunks.append(encode_chunk([body(world, random) for _ in range(random.choice((1, 1, 2, 4)))]))
    return wire.Step(publishes=step)


def one_configure(world: World, random: Random) -> wire.Step:
    step = wire.Configures(keys=random.sample(KEYS, random.choice((1, 1, 2))))
    step.options.history_messages = random.choice((0, 0, 1, 3))
    step.options.history_age_s = random.choice((0, 0, 0, 1))
    return wire.Step(configures=step)


def one_farewell(world: World, random: Random) -> wire.Step:
    some = random.sample(QUEUES, random.choice((1, 1, 2)))
    step = wire.Farewells(queues=some)
    if random.random() < 0.85:
        direct = [b"@" + name for name in QUEUES]
        step.keys.extend(random.choice(KEYS + KEYS if random.random() < 0.9 else direct) for _ in some)
        step.chunks.extend(encode_chunk([body(world, random)]) for _ in some)
        step.after_s = random.choice((0, 0, 1, 6))
    return wire.Step(farewells=step)


def one_drop(world: World, random: Random) -> wire.Step:
    name = random.choice(QUEUES)
    step = wire.Drops(queues=[name])
    life = world.node.owed.lives.get(name)
    if random.random() < 0.3:
        step.incarnations.append(max(0, (life.incarnation if life else 7) - random.randint(0, 1)))
    step.if_unused, step.if_empty = random.random() < 0.4, random.random() < 0.3
    return wire.Step(drops=step)


def one_purge(world: World, random: Random) -> wire.Step:
    return wire.Step(purges=wire.Purges(queues=[random.choice(QUEUES)]))


def one_ack(world: World, random: Random) -> wire.Step:
    """Names messages that are owed, or some that are not; perhaps several that stand in a row."""
    step = wire.TransactionAcks()
    for _ in range(random.choice((1, 1, 3))):
        name, key = random.choice(QUEUES), random.choice(KEYS)
        life = world.node.owed.lives.get(name)
        owed = sorted(life.todo.get(key, ())) if life is not None else []
        if not owed and life is not None and life.todo:
            key = random.choice(list(life.todo))
            owed = sorted(life.todo[key])
        low = random.choice(owed) if owed and random.random() < 0.9 else random.randint(1, 9)
        step.queues.append(name)
        step.keys.append(key)
        step.lows.append(low)
        step.tos.append(low + random.choice((1, 1, 1, 2, 5)))
    return wire.Step(acks=step)


def declare(world: World, random: Random) -> None:
    world.change(random, one_declare(world, random))


def bind(world: World, random: Random) -> None:
    world.change(random, one_bind(world, random))


def unbind(world: World, random: Random) -> None:
    world.change(random, one_unbind(world, random))


def publish(world: World, random: Random) -> None:
    world.change(random, one_publish(world, random))


def configure(world: World, random: Random) -> None:
    world.change(random, one_configure(world, random))


def farewell(world: World, random: Random) -> None:
    world.change(random, one_farewell(world, random))


def drop(world: World, random: Random) -> None:
    world.change(random, one_drop(world, random))


def purge(world: World, random: Random) -> None:
    world.change(random, one_purge(world, random), purging=True)


def several(world: World, random: Random) -> None:
    """Sends several steps in one frame: they happen in one record."""
    kinds = [one_declare, one_bind, one_bind, one_unbind, one_publish, one_publish, one_drop, one_configure]
    kinds.append(one_farewell)
    if not world.parts:
        kinds.append(one_purge)
    world.change(random, *(random.choice(kinds)(world, random) for _ in range(random.randint(2, 5))))


def ack_in_change(world: World, random: Random) -> None:
    world.change(random, one_ack(world, random))


def transaction(world: World, random: Random) -> None:
    """Asks for several steps, all or none."""
    kinds = [one_ack, one_ack, one_publish, one_publish, one_bind, one_unbind, one_declare, one_configure]
    steps = [random.choice(kinds)(world, random) for _ in range(random.randint(1, 4))]
    world.change(random, *steps, atomic=True)


def setting(world: World, random: Random) -> None:
    """Makes a queue that exists, is bound, and may have backlog."""
    name, keys = random.choice(QUEUES), random.sample(KEYS, random.choice((1, 3, 5)))
    options = world.terms(name)
    options.expires_after_s = 0
    binds = wire.Binds(queues=[name], key_counts=[len(keys)], keys=keys)
    publishes = [one_publish(world, random) for _ in range(random.randint(0, 3))]
    world.change(
        random, wire.Step(declares=wire.Declares(queues=[name], options=options)), wire.Step(binds=binds), *publishes
    )


def away(world: World, random: Random) -> None:
    """Unbinds a queue from a key and binds it again, with backlog left: this makes done ranges without an ack."""
    (name, other), key = random.sample(QUEUES, 2), random.choice(KEYS)
    here = wire.Step(binds=wire.Binds(queues=[name, other], key_counts=[1, 1], keys=[key, key]))
    leave = wire.Step(unbinds=wire.Unbinds(queues=[name], key_counts=[1], keys=[key]))
    steps = [wire.Step(declares=wire.Declares(queues=[name, other])), here]
    for _ in range(random.randint(1, 4)):
        chunks = [encode_chunk([body(world, random) for _ in range(random.choice((1, 2, 3)))]) for _ in range(2)]
        told = [wire.Step(publishes=wire.Publishes(keys=[key], chunks=[chunk])) for chunk in chunks]
        steps += [told[0], leave, told[1], here]
    world.change(random, *steps)


def again(world: World, random: Random) -> None:
    """Sends a frame a second time."""
    client = pick_client(world, random)
    if client is not None and client.frames:
        sequence, data = random.choice(client.frames)
        world.send(ChangeHead(client.producer, sequence, max(0, sequence - 1)), data, lambda _: None)


def bulk(world: World, random: Random) -> None:
    """Sends a chunk of an import: the next one, one that came before, or one too far."""
    if not world.chunks or random.random() < 0.2:
        world.runs += 1
        world.chunks[b"r%015d" % world.runs] = 0
    run, last = random.choice(list(world.chunks.items()))
    chunk = max(1, last + random.choice((1, 1, 1, 1, 0, 2)))
    step = wire.Imports()
    with_starts = random.random() < 0.3
    for name in sorted(random.sample(QUEUES, random.choice((1, 2)))):
        keys = random.sample(KEYS, random.choice((0, 1, 3)))
        step.queues.append(name)
        step.key_counts.append(len(keys))
        step.keys.extend(keys)
        heads = [world.node.owed.keys[key].head if key in world.node.owed.keys else 1 for key in keys]
        step.starts.extend([max(0, head - random.randint(-1, 3)) for head in heads] if with_starts else [])
    data = wire.Change(steps=[wire.Step(imports=step)]).SerializeToString()
    checked = parse_import(data)
    world.say(run, chunk, step)

    def applied(effects: Effects) -> None:
        if effects.refused is None:
            world.chunks[run] = max(world.chunks[run], chunk)

    payload = encode_change(ChangeHead(run, chunk, max(0, chunk - 2)), data)
    world.node.submit(Item(Kind.CHANGE, payload, applied, lambda _: None, checked))
