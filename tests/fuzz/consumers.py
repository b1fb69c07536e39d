"""Provides the steps of consumers: attach, detach, pull, read what comes, ack it."""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import NamedTuple

from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters import requests as adapted
from shoal_slice_node.core.node import requests, settling
from shoal_slice_node.core.node.named_feeds import named_feeds
from shoal_slice_node.core.rows.queue_row import life_of
from shoal_slice_node.core.turns import Work
from tests.fuzz.node import Client
from tests.fuzz.owed import Life
from tests.fuzz.sources import UNARY, source_of
from tests.fuzz.world import HANDLES, QUEUES, World, pick_client


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
    read(world, client, requests.attach(world.node.node, client.session, request), random)


def detach(world: World, random: Random) -> None:
    client = pick_client(world, random)
    if client is not None:
        request = wire.Detach(handles=random.sample(HANDLES, random.choice((1, 1, 2))))
        world.say("detach", client.session.number, request)
        read(world, client, requests.detach(world.node.node, client.session, request), random)


def read(world: World, client: Client | None, work: Callable[[], Work[wire.Answer | None]], random: Random) -> None:
    """Submits work as the session's stream, or a unary call, does. What is not done quickly is dropped."""
    source = UNARY if client is None else source_of(client.session)

    def answered(answer: wire.Answer) -> None:
        session = world.node.shared if client is None else client.session
        world.checks.gave()
        for delivery in answer.pulled.deliveries:
            receive(world, session.number, None, delivery)

    if client is not None and client.session.closed:
        return
    adapted.submit_work(world.node, source, 0, work, answered, again=lambda: None)  # type: ignore[arg-type]
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
    pulling = requests.pull(world.node.node, session, request, default_ms, 3000)
    read(world, client, random.choice((pulling.whole, partial(pulling.within, 16))), random)


def receive(world: World, session: int, handle: int | None, delivery: wire.Delivery) -> None:
    """Checks a delivery: bodies and times are those that were published; each message was given, and comes in its
    turn."""
    node = world.node
    if delivery.live:
        queue = node.clients[session].session.queue_of(handle or 0)
        assert queue is not None, f"handle {handle} of session {session} is not in use"
        world.lives.came(queue, delivery)
        return
    bodies = parse_chunk(delivery.chunk).bodies
    log, deliveries, headers = (
        node.owed.keys[delivery.key].log,
        node.owed.deliveries,
        parse_chunk(delivery.chunk).headers,
    )
    for offset in range(delivery.low, delivery.to):
        found = bodies[offset - delivery.first], delivery.time_ms
        assert log[offset] == found, f"{delivery.key!r} {offset} brings another message"
        ways = [
            way for way in node.given.ways.get(session, {}) if way[0] == handle and way[2:] == (delivery.key, offset)
        ]
        assert ways, f"{delivery.key!r} {offset} reaches session {session} handle {handle}, and was not given to it"
        deliveries.check_times(ways[0].life, delivery.key, offset, delivery.redelivered)
        deliveries.check_headers(delivery.key, offset, headers[offset - delivery.first].fields if headers else {})
        node.given.came(session, ways[0], not delivery.redelivered, delivery.nacks_taken)


def take(world: World, random: Random, client: Client | None = None) -> None:
    """Lets a client's transport take something, or finish what it took."""
    client = client or pick_client(world, random, lazy=False)
    if client is None:
        return
    session, dispatcher = client.session, world.node.dispatcher
    if client.writing:
        cost_bytes, client.writing = client.writing, 0
        dispatcher.sent(session, cost_bytes)
    elif client.awake:
        dispatcher.reads(session)  # Its transport has taken all that it was given before.
        session.resets.take(1 << 30)
        session.new_parts.clear()
        session.ended_handles.take(len(session.ended_handles))
        deliveries: list[wire.Delivery] = []
        if session.waiting:
            taken = dispatcher.take(session, random.choice((1, 500, 1 << 20)))
            deliveries, client.writing = taken.deliveries, taken.cost_bytes
        for delivery in deliveries:
            world.say(
                "to", session.number, delivery.key, delivery.low, delivery.to, delivery.handles, delivery.redelivered
            )
            for handle in delivery.handles:
                receive(world, session.number, handle, delivery)
        client.awake = (client.awake and session.to_send) or bool(client.writing)


def ack(world: World, random: Random) -> None:
    """Lets a session ack messages that it holds, and sometimes others."""
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
            if request.to % 3:  # Else it does not say of which life.
                request.lives.append(life_here(world, name) if request.to % 3 == 1 else LIFE_OF_NONE)
        else:
            request.handles.append(handle)
        frame.append(request)
    # The client of half of the frames has seen no reset yet. No draw says of which: seeds mean what they did.
    total = sum(one.to for one in frame)
    for one in frame if total % 3 == 0 else ():  # They name what others have, too, and what nobody has.
        one.low, one.to = max(1, one.low - 2), one.to + 4
    seen = 0 if total % 2 else client.session.resets.noted
    send_acks(world, client, frame, seen, of_lost_stream=total % 3 == 0)


def nack(world: World, random: Random) -> None:
    """Lets a session give messages back that it holds, and sometimes others."""
    client = pick_client(world, random)
    held = held_by(world, client) if client is not None else []
    if client is None or not held:
        return
    name, handle, key, offsets = random.choice(held)
    first, last = sorted(random.choices(offsets, k=2))
    request = wire.Ack(key=key, low=random.choice((0, first)), to=last + 1 + random.choice((0, 0, 3)))
    if handle is None:
        request.queues.append(name)
        if request.to % 3 == 1:
            request.lives.append(life_here(world, name))
    else:
        request.handles.append(handle)
    nacks = wire.Nacks(messages=[request], delay_ms=random.choice((0, 0, 100, 2000)))
    nacks.unseen = not nacks.delay_ms and random.random() < 0.5
    if handle is not None and random.random() < 0.2:
        nacks.stop.append(handle)
        client.stopped = True
    number, given = client.session.number, world.node.given
    done, sent = given.nacks.get(number, (0, 0))
    if nacks.unseen and random.random() < 0.5:
        nacks.number = sent + 1
        given.nacks[number] = done, sent + 1
    world.say("nack", number, nacks)
    owned = world.node.owed.owns(key)

    def taken(error: ShoalError | None) -> None:
        if nacks.number and error is None and number in given.nacks:
            given.nacks[number] = max(nacks.number, given.nacks[number][0]), given.nacks[number][1]
        if error is not None and owned and world.node.owed.owns(key):
            world.failed.append(error)

    settling.take_nacks(world.node.node, source_of(client.session), client.session, nacks, taken, everyone=False)


LIFE_OF_NONE = (1 << 64) - 1
"""A life that no queue has."""


def life_here(world: World, name: bytes) -> int:
    """Returns the life of a queue's part; 0: there is none."""
    queue_id = world.node.node.state.tables.queue_by_name.get(name)
    return 0 if queue_id is None else life_of(queue_id)


def held_by(world: World, client: Client) -> list[tuple[bytes, int | None, bytes, list[int]]]:
    """Returns (queue, handle, key, offsets) of the messages that a session holds."""
    found = []
    session, given = client.session, world.node.given
    for attachment in (*session.attachments.values(), *session.pullers.values()):
        life = world.node.owed.lives.get(attachment.feed.name)
        for key in life.todo if life else ():
            offsets = sorted(o for o, holder in given.holds(life, key).items() if holder.consumer is attachment)  # type: ignore[arg-type]
            if offsets:
                found.append((attachment.feed.name, attachment.handle, key, offsets))
    return found


class Asked(NamedTuple):
    """A message that a frame of acks names, when the frame is sent: the place of its queue in the frame, and the record
    that made it owed. `out`: the session has it."""

    place: int
    life: Life
    key: bytes
    offset: int
    since: int
    out: bool

    def is_owed(self, world: World) -> bool:
        owed = self.life.todo.get(self.key, {}).get(self.offset) == self.since
        return owed and world.node.owed.lives.get(self.life.name) is self.life


def send_acks(
    world: World, client: Client, acks: list[wire.Ack], seen: int = 1 << 30, of_lost_stream: bool = False
) -> None:
    """Sends acks, and asks what of them is unacked. Once they are answered they are durable: acked messages do not come
    again, nor does any that is not told as unacked. `seen`: how many resets the client had seen."""
    node, session = world.node, client.session
    busy = node.node.turns.busy(source_of(session))  # Then a handle may mean another queue when it is looked up.
    asked = [] if busy else list(named(world, client, acks, seen))
    owned = all(node.owed.owns(one.key) for one in acks)
    unacked: list[int] = []

    def check_durable() -> None:
        for one in asked:
            assert not (one.out and one.is_owed(world)), f"an ack of {one.key!r} {one.offset} is answered, not durable"

    def check_answer() -> None:
        check_durable()
        for one in asked:
            what = f"{one.key!r} {one.offset}"
            assert one.place in unacked or not one.is_owed(world), f"{what} is told as acked, and is not"

    def flushed(error: ShoalError | None) -> None:
        if error is None and not session.closed:
            world.checked(check_answer)

    def named_flushed(error: ShoalError | None) -> None:
        if error is None and not session.closed:
            world.checked(check_durable)

    def taken(error: ShoalError | None) -> None:
        if error is None:
            node.node.acks.then(named_flushed, named_feeds(node.node, session, acks))
            node.node.acks.then(flushed)
        elif owned and all(node.owed.owns(one.key) for one in acks):
            world.failed.append(error)

    world.say("acks", session.number, acks)
    earlier = [one for one in session.attachments.values() if one.resets_before > seen]
    of_none = [one.queues[0] for one in acks if list(one.lives) == [LIFE_OF_NONE]]
    for_some = [one.queues[0] for one in acks if one.queues and list(one.lives) != [LIFE_OF_NONE]]
    earlier += [one for one in session.pullers.values() if one.feed.name in set(of_none).difference(for_some)]
    kept = sum(one.messages for one in earlier)
    settling.take_acks(node.node, source_of(session), session, acks, taken, False, unacked, seen, of_lost_stream)
    assert kept <= sum(one.messages for one in earlier), "an ack for an earlier life ends something of the present one"


def named(world: World, client: Client, acks: list[wire.Ack], seen: int) -> Iterator[Asked]:
    """Yields the messages that acks name by handle, as far as they are owed."""
    place = -1
    for one in acks:
        for handle in one.handles:
            place += 1
            attachment = client.session.attachments.get(handle)
            life = None if attachment is None else world.node.owed.lives.get(attachment.feed.name)
            if life is None or attachment is None or attachment.feed.gone or attachment.resets_before > seen:
                continue
            holds = world.node.given.holds(life, one.key)
            for offset, since in life.todo.get(one.key, {}).items():
                if one.low <= offset < one.to:
                    holder = holds.get(offset)  # A lease may be over before the acks are taken in.
                    out = holder is not None and holder.consumer is attachment and holder.lease is None
                    yield Asked(place, life, one.key, offset, since, out)
        place += len(one.queues)


def ack_by_name(world: World, random: Random) -> None:
    """Acks by a unary call, whichever consumer holds the messages."""
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
    source = source_of(world.node.shared)
    settling.take_acks(world.node.node, source, world.node.shared, [request], lambda _: None, everyone=True)
