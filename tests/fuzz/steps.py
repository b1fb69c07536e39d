"""The steps of a run: what clients ask, what the node does by itself, what its disk does to it.

Each is a name and a number. The number seeds all that the step chooses, and it chooses among what is there when its
turn comes: so a run may be shortened by leaving steps out, and the others still mean something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from re import sub

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters import requests
from shoal_slice_node.adapters.commit_loop import Item
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.frames import parse_import
from shoal_slice_node.core.records import NO_PRODUCER, ChangeHead, Kind, encode_change, encode_ownership
from shoal_slice_node.core.turns import Work
from tests.fuzz.checks import Checks
from tests.fuzz.node import Client, Node
from tests.fuzz.owed import Life

PARTITIONS = 4
QUEUES = (b"q0", b"q1", b"q2", b"q3")
KEYS = (b"k0", b"k1", b"k2", b"k3", b"k4")
HANDLES = (1, 2, 3)
DAY_MS = 86_400_000
FRAMES_KEPT = 20


class World:
    """A node, its clients, and what they remember. `prompt`: how often what is asked is written and applied at once.
    `parts`: purges may come in parts."""

    def __init__(self, node: Node, prompt: float, parts: bool) -> None:
        self.node = node
        self.checks = Checks(node)
        self.prompt = prompt
        self.parts = parts
        self.bodies = 0
        self.runs = 0
        self.chunks: dict[bytes, int] = {}
        self.said: list[tuple[object, ...]] = []
        self.own(b"\x01" * PARTITIONS)
        self.settle()

    def say(self, *words: object) -> None:
        self.said.append(words)

    def told(self) -> str:
        """What was said, a line each."""
        lines = (sub(r"\s+", " ", sub(r"\.{3,}", "...", " ".join(map(str, words)))) for words in self.said)
        return "\n".join(lines)

    def settle(self) -> None:
        """All that is asked so far is done."""
        node = self.node
        while node.pending or node.written or node.turns:
            node.write(1 << 20)
            node.apply(1 << 20)
            node.work(20)
            node.turn(1)  # A read may wait for it.

    def own(self, owned: bytes) -> None:
        payload = encode_ownership(self.node.state.map_version + 1, owned)
        self.node.submit(Item(Kind.OWNERSHIP, payload, lambda _: None, lambda _: None))

    def change(self, random: Random, *steps: wire.Step, purging: bool = False) -> None:
        """By a session's numbered frame, or unnumbered."""
        data = wire.Change(steps=steps).SerializeToString()
        client = pick_client(self, random)
        head = ChangeHead(NO_PRODUCER, 0, 0)
        if client is not None and random.random() < 0.7:
            client.sequence += 1
            head = ChangeHead(client.producer, client.sequence, max(0, client.sequence - random.choice((1, 3, 9))))
            client.frames = [*client.frames[-FRAMES_KEPT:], (client.sequence, data)]
        self.send(head, data, self._purger(steps) if purging else lambda _: None)
        if random.random() < self.prompt:
            self.settle()

    def send(self, head: ChangeHead, data: bytes, then: Callable[[wire.Outcome], None]) -> None:
        def answered(answer: wire.Answer) -> None:
            if not answer.HasField("error"):
                outcome = wire.Outcome.FromString(answer.outcome)
                self._check_live(outcome, list(answer.live))
                then(outcome)

        self.say(head.sequence, wire.Change.FromString(data))
        requests.submit_change(self.node, "test", head, data, answered)  # type: ignore[arg-type]

    @staticmethod
    def _check_live(outcome: wire.Outcome, live: list[int]) -> None:
        routed = [queues for step in outcome.steps for queues in step.queues]
        assert not live or (len(live) == len(routed) and all(map(int.__le__, live, routed))), f"live {live} of {routed}"

    def _purger(self, steps: Sequence[wire.Step]) -> Callable[[wire.Outcome], None]:
        """Goes on until the purge is done, and then looks what is left of what was owed when it began."""
        name = steps[0].purges.queues[0]
        owed: list[tuple[Life, bytes, int, int]] = []
        bound: dict[bytes, int] = {}

        def then(outcome: wire.Outcome) -> None:
            if outcome.steps[0].refusals:
                return
            life = self.node.owed.lives[name]
            if not owed:
                owed.extend((life, *entry) for entry in self.node.owed.before_purge[life.number])
                bound.update(life.bound)
            position = outcome.steps[0].positions[0]
            if position:
                step = wire.Step(purges=wire.Purges(queues=[name], positions=[position]))
                data = wire.Change(steps=[step]).SerializeToString()
                self.send(ChangeHead(NO_PRODUCER, 0, 0), data, then)
                return
            for began, key, offset, since in owed:
                left = began is life and life.todo.get(key, {}).get(offset) == since
                assert not left or bound.get(key) != life.bound.get(key), f"{key!r} {offset} is not purged"

        return then


def pick_client(world: World, random: Random, lazy: bool = True) -> Client | None:
    found = [client for client in world.node.clients.values() if lazy or not client.lazy]
    return random.choice(found) if found else None


def body(world: World, random: Random) -> bytes:
    world.bodies += 1
    return b"%d" % world.bodies + b"." * random.choice((0, 0, 9, 400))


# Changes.


def one_declare(world: World, random: Random) -> wire.Step:
    some = random.sample(QUEUES, random.choice((1, 1, 2)))
    step = wire.Declares(queues=some)
    step.options.expires_after_s = 5 if random.random() < 0.1 else 0
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
    for _ in range(random.choice((1, 1, 3))):
        step.keys.append(random.choice(KEYS + KEYS if random.random() < 0.8 else direct))
        step.chunks.append(encode_chunk([body(world, random) for _ in range(random.choice((1, 1, 2, 4)))]))
    return wire.Step(publishes=step)


def one_drop(world: World, random: Random) -> wire.Step:
    name = random.choice(QUEUES)
    step = wire.Drops(queues=[name])
    life = world.node.owed.lives.get(name)
    if random.random() < 0.3:
        step.incarnations.append(max(0, (life.incarnation if life else 7) - random.randint(0, 1)))
    return wire.Step(drops=step)


def one_purge(world: World, random: Random) -> wire.Step:
    return wire.Step(purges=wire.Purges(queues=[random.choice(QUEUES)]))


def declare(world: World, random: Random) -> None:
    world.change(random, one_declare(world, random))


def bind(world: World, random: Random) -> None:
    world.change(random, one_bind(world, random))


def unbind(world: World, random: Random) -> None:
    world.change(random, one_unbind(world, random))


def publish(world: World, random: Random) -> None:
    world.change(random, one_publish(world, random))


def drop(world: World, random: Random) -> None:
    world.change(random, one_drop(world, random))


def purge(world: World, random: Random) -> None:
    world.change(random, one_purge(world, random), purging=True)


def several(world: World, random: Random) -> None:
    """Steps of one frame happen in one record."""
    kinds = [one_declare, one_bind, one_bind, one_unbind, one_publish, one_publish, one_drop]
    if not world.parts:
        kinds.append(one_purge)
    world.change(random, *(random.choice(kinds)(world, random) for _ in range(random.randint(2, 5))))


def setting(world: World, random: Random) -> None:
    """A queue that is there, bound, and has something to get."""
    name, keys = random.choice(QUEUES), random.sample(KEYS, random.choice((1, 3, 5)))
    binds = wire.Binds(queues=[name], key_counts=[len(keys)], keys=keys)
    publishes = [one_publish(world, random) for _ in range(random.randint(0, 3))]
    world.change(random, wire.Step(declares=wire.Declares(queues=[name])), wire.Step(binds=binds), *publishes)


def away(world: World, random: Random) -> None:
    """A queue leaves a key and comes back, with something left to get: done ranges that no ack made."""
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
    """A frame comes a second time."""
    client = pick_client(world, random)
    if client is not None and client.frames:
        sequence, data = random.choice(client.frames)
        world.send(ChangeHead(client.producer, sequence, max(0, sequence - 1)), data, lambda _: None)


def bulk(world: World, random: Random) -> None:
    """A chunk of an import: the next, or one that came before, or one too far."""
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


# Consumers.


def open_session(world: World, random: Random) -> None:
    if len(world.node.clients) < 4:
        world.node.open(random.choice((1, 700, 2500, 1 << 20)), lazy=random.random() < 0.2)


def close_session(world: World, random: Random) -> None:
    client = pick_client(world, random)
    if client is not None and random.random() < 0.5:
        world.say("close", client.session.number)
        world.node.close(client)


def attach(world: World, random: Random) -> None:
    client = pick_client(world, random)
    if client is None:
        open_session(world, random)
        return
    count = random.choice((1, 1, 2))
    request = wire.Attach(queues=random.sample(QUEUES, count), handles=random.sample(HANDLES, count))
    request.window_messages = random.choice((1, 2, 5, 1000))
    request.window_bytes = random.choice((1, 500, 0))
    world.say("attach", client.session.number, request)
    read(world, client, requests.attach(world.node, client.session, request), random)  # type: ignore[arg-type]


def detach(world: World, random: Random) -> None:
    client = pick_client(world, random)
    if client is not None:
        request = wire.Detach(handles=random.sample(HANDLES, random.choice((1, 1, 2))))
        world.say("detach", client.session.number, request)
        read(world, client, requests.detach(world.node, client.session, request), random)  # type: ignore[arg-type]


def read(world: World, client: Client | None, work: Callable[[], Work[wire.Answer]], random: Random) -> None:
    """As the session's stream, or a unary call, submits it."""
    source = "unary" if client is None else client.session.number

    def answered(answer: wire.Answer) -> None:
        session = world.node.shared if client is None else client.session
        world.checks.gave()
        for delivery in answer.pulled.deliveries:
            receive(world, session.number, None, delivery)

    if client is not None and client.session.closed:
        return
    requests.submit_work(world.node, source, 0, work, answered)  # type: ignore[arg-type]
    if random.random() < world.prompt:
        world.settle()


def pull(world: World, random: Random) -> None:
    client = pick_client(world, random) if random.random() < 0.6 else None
    request = wire.Pull(queue=random.choice(QUEUES), messages_max=random.choice((1, 2, 5, 0)))
    request.bytes_max = random.choice((1, 500, 0))
    request.lease_ms = random.choice((0, 100, 2000))
    session = world.node.shared if client is None else client.session
    world.say("pull", session.number, request)
    default_ms = 1500 if client is None else 0
    read(world, client, requests.pull(world.node, session, request, default_ms, 3000), random)  # type: ignore[arg-type]


def receive(world: World, session: int, handle: int | None, delivery: wire.Delivery) -> None:
    """Bodies and times are those that were published; it was given, and comes in its turn."""
    node = world.node
    bodies = parse_chunk(delivery.chunk).bodies
    log = node.owed.keys[delivery.key].log
    for offset in range(delivery.low, delivery.to):
        found = bodies[offset - delivery.first], delivery.time_ms
        assert log[offset] == found, f"{delivery.key!r} {offset} brings another message"
        ways = [
            way for way in node.given.ways.get(session, {}) if way[0] == handle and way[2:] == (delivery.key, offset)
        ]
        assert ways, f"{delivery.key!r} {offset} reaches session {session} handle {handle}, and was not given to it"
        node.given.came(session, ways[0], not delivery.redelivered)


def take(world: World, random: Random, client: Client | None = None) -> None:
    """A client's transport takes something, or is done with what it took."""
    client = client or pick_client(world, random, lazy=False)
    if client is None:
        return
    session, dispatcher = client.session, world.node.dispatcher
    if client.writing:
        cost_bytes, client.writing = client.writing, 0
        dispatcher.sent(session, cost_bytes)
    elif client.awake:
        session.resets.clear()
        deliveries: list[wire.Delivery] = []
        if session.waiting:
            deliveries, client.writing = dispatcher.take(session, random.choice((1, 500, 1 << 20)))
        for delivery in deliveries:
            world.say(
                "to", session.number, delivery.key, delivery.low, delivery.to, delivery.handles, delivery.redelivered
            )
            for handle in delivery.handles:
                receive(world, session.number, handle, delivery)
        client.awake = (client.awake and session.to_send) or bool(client.writing)


def ack(world: World, random: Random) -> None:
    """By a session, of what it holds; sometimes of what it does not."""
    client = pick_client(world, random)
    if client is None:
        return
    held = held_by(world, client)
    if not held:
        return
    frame = []
    for _ in range(random.choice((1, 1, 3))):
        name, handle, key, offsets = random.choice(held)
        first, last = sorted(random.choices(offsets, k=2))
        low = random.choice((0, first, first, first))
        request = wire.Ack(key=key, low=low, to=last + 1 + random.choice((0, 0, 3)))
        if handle is None:
            request.queues.append(name)
        else:
            request.handles.append(handle)
        frame.append(request)
    send_acks(world, client, frame)


def held_by(world: World, client: Client) -> list[tuple[bytes, int | None, bytes, list[int]]]:
    """(queue, handle, key, offsets) of what a session holds."""
    found = []
    session, given = client.session, world.node.given
    for attachment in (*session.attachments.values(), *session.pullers.values()):
        life = world.node.owed.lives.get(attachment.feed.name)
        for key in life.todo if life else ():
            offsets = sorted(o for o, holder in given.holds(life, key).items() if holder.consumer is attachment)  # type: ignore[arg-type]
            if offsets:
                found.append((attachment.feed.name, attachment.handle, key, offsets))
    return found


def send_acks(world: World, client: Client, acks: list[wire.Ack]) -> None:
    """Once they are answered they are durable: what was acked comes no more."""
    node, session = world.node, client.session
    promised: list[tuple[Life, bytes, int, int]] = []
    for one in acks if not node.turns.busy(session.number) else ():  # Else a handle may mean another queue by then.
        for handle in one.handles:
            attachment = session.attachments.get(handle)
            life = None if attachment is None else node.owed.lives.get(attachment.feed.name)
            if life is not None and attachment is not None and not attachment.feed.gone:
                for offset, holder in node.given.holds(life, one.key).items():
                    if holder.consumer is attachment and one.low <= offset < one.to:
                        promised.append((life, one.key, offset, life.todo[one.key][offset]))

    def flushed(error: ShoalError | None) -> None:
        for life, key, offset, since in promised if error is None and not session.closed else ():
            assert life.todo.get(key, {}).get(offset) != since, f"an ack of {key!r} {offset} is answered, not durable"

    def taken(error: ShoalError | None) -> None:
        assert error is None
        node.acks.then(flushed)

    world.say("acks", session.number, acks)
    try:
        requests.take_acks(node, session, acks, taken, everyone=False)  # type: ignore[arg-type]
    except ShoalError as error:
        assert not all(node.owed.owns(one.key) for one in acks), error


def ack_by_name(world: World, random: Random) -> None:
    """A unary call: whoever has it."""
    held = [
        (life, key) for life in world.node.owed.lives.values() for key in life.todo if world.node.given.holds(life, key)
    ]
    if not held:
        return
    life, key = random.choice(held)
    offsets = sorted(world.node.given.holds(life, key))
    first, last = sorted(random.choices(offsets, k=2))
    request = wire.Ack(key=key, low=first, to=last + 1, queues=[life.name])
    world.say("ack by name", request)
    try:
        requests.take_acks(world.node, world.node.shared, [request], lambda _: None, everyone=True)  # type: ignore[arg-type]
    except ShoalError as error:
        assert not world.node.owed.owns(key), error


# The node and its disk.


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
    world.node.acks.flush()


def trim(world: World, random: Random) -> None:
    node = world.node
    node.trimmer.moved(node.maintenance._keys.turn(), node.now_ms)
    if node.trimmer.pending:
        node.maintenance._trim(node.now_ms)


def reclaim(world: World, random: Random) -> None:
    world.node.maintenance._reclaim()


def producers(world: World, random: Random) -> None:
    world.node.maintenance._forget_producers(world.node.now_ms)


def expire(world: World, random: Random) -> None:
    world.node.expire()


def time(world: World, random: Random) -> None:
    world.node.now_ms += random.choice((1, 100, 600, 2500, 700_000, DAY_MS if random.random() < 0.1 else 1))


def divide(world: World, random: Random) -> None:
    node = world.node
    node.dispatcher.divide_owed([client.session for client in node.clients.values()])


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
    """Dispatch does all that it has to do, and it is enough."""
    for _ in range(3000):
        if not world.node.dispatcher.has_work:
            break
        world.node.turn(1)
    assert not world.node.dispatcher.has_work, "dispatch finds no rest"
    world.checks.served()


def look(world: World, random: Random) -> None:
    world.checks.tables()


Step = Callable[[World, Random], None]
WEIGHTS: dict[Step, int] = {
    setting: 6, away: 2, declare: 3, bind: 5, unbind: 4, publish: 10, drop: 1, purge: 2, several: 4, again: 2, bulk: 2,
    open_session: 2, close_session: 1, attach: 6, detach: 2, pull: 3, take: 14, ack: 10, ack_by_name: 1,
    write: 5, refuse: 2, apply: 5, turn: 9, work: 3, flush: 5, trim: 3, reclaim: 2, producers: 1, expire: 2, time: 3,
    divide: 1, freeze: 2, checkpoint: 2, crash: 1, own: 1, rest: 3, look: 1,
}  # fmt: skip
BY_NAME: dict[str, Step] = {step.__name__: step for step in WEIGHTS}
