"""Makes proper requests of each verb, as a client would send them. Mutations start from them. All follow from `random`.

Names are few, so that requests meet what others did. Belongs here: valid messages. Not here: mutating, sending.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar
from zlib import crc32

from google.protobuf.message import Message

from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import admin_pb2 as admin
from shoal_contract.wire import bulk_pb2 as bulk
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk, Exclusive, QueueOptions

Item = TypeVar("Item")
QUEUES = tuple(b"q%d" % number for number in range(6))
KEYS = (*(b"k%d" % number for number in range(6)), b"{k1}x", "schlüssel".encode())
PRODUCERS = tuple(b"%016d" % number for number in range(1, 5))
"""The producers that several sessions use; most sessions have their own."""
START_VALUES = (0, 1, 5)


def some(random: Random, items: tuple[Item, ...]) -> list[Item]:
    return random.sample(items, random.choice((1, 1, 2, 3)))


def one_of(random: Random, items: tuple[Item, ...]) -> Item:
    return random.choice(items)


def to_publish(random: Random) -> bytes:
    """Returns a key, perhaps the direct key of a queue."""
    return one_of(random, KEYS) if random.random() < 0.8 else b"@" + one_of(random, QUEUES)


def chunk(random: Random) -> bytes:
    size = random.choice((0, 3, 3, 3, 50, 50, 3000, 100_000))
    bodies = [random.randbytes(size) for _ in range(random.choice((1, 1, 2, 5)))]
    return encode_chunk(bodies, [{"name": b"value"} for _ in bodies] if random.random() < 0.2 else ())


# Frames of a session.


def opened(random: Random) -> bytes:
    producer = one_of(random, PRODUCERS) if random.random() < 0.3 else random.randbytes(16)
    window_bytes = random.choice((0, 1, 4096, 1 << 20))
    return wire.SessionRequest(open=wire.Open(producer=producer, window_bytes=window_bytes)).SerializeToString()


def frame(random: Random, sequence: int) -> bytes:
    """Returns a frame. `sequence`: its place in the session."""
    kinds = list(_FRAMES)
    request = random.choices(kinds, list(_FRAMES.values()))[0](random)
    request.sequence = sequence
    request.settled = max(0, sequence - random.choice((1, 1, 3)))
    return request.SerializeToString()


def _change(random: Random) -> wire.SessionRequest:
    steps = [random.choice(_STEPS)(random) for _ in range(random.choice((1, 1, 2, 4)))]
    return wire.SessionRequest(change=wire.Change(steps=steps, atomic=random.random() < 0.3).SerializeToString())


def _attach(random: Random) -> wire.SessionRequest:
    queues = some(random, QUEUES)
    return wire.SessionRequest(
        attach=wire.Attach(
            queues=queues,
            handles=random.sample(range(1, 9), len(queues)),
            window_messages=random.choice((0, 1, 10)),
            window_bytes=random.choice((0, 1, 1000)),
        )
    )


def _detach(random: Random) -> wire.SessionRequest:
    return wire.SessionRequest(detach=wire.Detach(handles=random.sample(range(1, 9), 2)))


def ack(random: Random) -> wire.Ack:
    low = random.choice((0, 1, 2, 10))
    found = wire.Ack(key=to_publish(random), low=low, to=low + random.choice((1, 2, 50)))
    if random.random() < 0.5:
        found.queues.extend(some(random, QUEUES))
        found.lives.extend([1] * len(found.queues) if low == 2 else ())
    else:
        found.handles.extend(random.sample(range(1, 9), 2))
    return found


def _acks(random: Random) -> wire.SessionRequest:
    acks = [ack(random) for _ in range(random.choice((1, 3)))]
    tell_unacked, of_lost_stream = random.random() < 0.5, random.random() < 0.5
    found = wire.Acks(acks=acks, tell_unacked=tell_unacked, of_lost_stream=of_lost_stream, resets_seen=1)
    return wire.SessionRequest(acks=found)


def _nacks(random: Random) -> wire.SessionRequest:
    return wire.SessionRequest(nacks=nacks(random))


def nacks(random: Random) -> wire.Nacks:
    delay_ms = random.choice((0, 0, 20, 86_400_000))
    messages = [ack(random) for _ in range(random.choice((1, 3)))]
    stop = random.choice(((), (), (1, 2), range(1, 9)))
    unseen = not delay_ms and random.random() < 0.5
    number = random.choice((0, 1, 1 << 62)) if unseen else 0
    return wire.Nacks(messages=messages, delay_ms=delay_ms, unseen=unseen, number=number, stop=stop, resets_seen=1)


def pull(random: Random) -> wire.Pull:
    return wire.Pull(
        queue=one_of(random, QUEUES),
        messages_max=random.choice((0, 1, 5)),
        bytes_max=random.choice((0, 1, 1000)),
        lease_ms=random.choice((0, 1, 50)),
        peek=random.random() < 0.3,
    )


def describe(random: Random) -> wire.Describe:
    return wire.Describe(queues=some(random, QUEUES), keys=some(random, KEYS), bindings=random.random() < 0.5)


_FRAMES: dict[Callable[[Random], wire.SessionRequest], int] = {
    _change: 8,
    _attach: 3,
    _detach: 1,
    _acks: 4,
    _nacks: 2,
    lambda random: wire.SessionRequest(pull=pull(random)): 2,
    lambda random: wire.SessionRequest(describe=describe(random)): 1,
}


def _declares(random: Random) -> wire.Step:
    incarnations = [random.choice((0, 1 << 48 | 7))] if random.random() < 0.3 else []
    queues = some(random, QUEUES)
    options = QueueOptions()
    if random.random() < 0.3:
        options.ack_timeout_ms, options.max_deliveries = random.choice((0, 100)), random.choice((1, 2))
        options.dead_letter = random.choice((b"", to_publish(random)))
        if options.dead_letter[1:] in queues:  # A queue's own direct key is refused.
            options.dead_letter = b""
    declares = wire.Declares(queues=queues, incarnations=incarnations * len(queues), options=options)
    return wire.Step(declares=declares)


def _memberships(random: Random) -> tuple[list[bytes], list[int], list[bytes]]:
    """Returns the columns of binds, unbinds and imports; queues are sorted, as imports need them."""
    queues = sorted(some(random, QUEUES))
    keys = [some(random, KEYS) for _ in queues]
    return queues, list(map(len, keys)), [key for part in keys for key in part]


def _binds(random: Random) -> wire.Step:
    queues, counts, keys = _memberships(random)
    start, value = one_of(random, tuple(wire.Start.values())), one_of(random, START_VALUES)
    return wire.Step(binds=wire.Binds(queues=queues, key_counts=counts, keys=keys, start=start, start_value=value))


def _unbinds(random: Random) -> wire.Step:
    queues, counts, keys = _memberships(random)
    return wire.Step(unbinds=wire.Unbinds(queues=queues, key_counts=counts, keys=keys, discard=random.random() < 0.5))


def _publishes(random: Random) -> wire.Step:
    keys = [to_publish(random) for _ in range(random.choice((1, 1, 3)))]
    chunks = [chunk(random) for _ in keys]
    live = random.random() < 0.1
    return wire.Step(publishes=wire.Publishes(keys=keys, chunks=chunks, mandatory=random.random() < 0.2, live=live))


def _acks_in_change(random: Random) -> wire.Step:
    found = wire.TransactionAcks()
    for queue in some(random, QUEUES):
        found.queues.append(queue)
        found.keys.append(to_publish(random))
        found.lows.append(random.choice((0, 1, 1, 2, 1 << 63)))
        found.tos.append(found.lows[-1] + random.choice((0, 1, 1, 2, 1 << 62)))
    found.lives.extend(range(len(found.queues)) if 0 not in found.lows else ())
    return wire.Step(acks=found)


_STEPS: tuple[Callable[[Random], wire.Step], ...] = (
    _declares,
    _binds,
    _binds,
    _unbinds,
    _publishes,
    _publishes,
    _publishes,
    _acks_in_change,
    lambda random: wire.Step(drops=wire.Drops(queues=some(random, QUEUES)[:1])),
    lambda random: wire.Step(purges=wire.Purges(queues=some(random, QUEUES), positions=[])),
)


# Unary calls.


def _bind(random: Random) -> Message:
    start, value = one_of(random, tuple(wire.Start.values())), one_of(random, START_VALUES)
    return wire.BindRequest(queue=one_of(random, QUEUES), keys=some(random, KEYS), start=start, start_value=value)


def _publish(random: Random) -> Message:
    request = wire.PublishRequest(key=to_publish(random), chunk=Chunk.FromString(chunk(random)))
    if random.random() < 0.3:
        request.producer, request.sequence = one_of(random, PRODUCERS), random.randrange(1, 9)
    request.live = random.random() < 0.2
    return request


def _declare(random: Random) -> Message:
    queue, options = one_of(random, QUEUES), QueueOptions(expires_after_s=random.choice((0, 0, 60)))
    if random.random() < 0.3:
        options.ack_timeout_ms, options.max_deliveries = random.choice((0, 100)), random.choice((1, 2))
        options.dead_letter = random.choice((b"", to_publish(random)))
        if options.dead_letter[1:] == queue:  # Refused, as above.
            options.dead_letter = b""
    options.exclusive = Exclusive.ValueType(random.choice((0, 0, 0, 1, 2, 9)))
    return wire.DeclareRequest(queue=queue, options=options)


def _ack(random: Random) -> Message:
    found = ack(random)
    del found.handles[:]
    return wire.AckRequest(acks=[found])


def _nack(random: Random) -> Message:
    found = nacks(random)
    for one in found.messages:
        del one.handles[:]
    del found.stop[:]
    return wire.NackRequest(nacks=found)


def _page(request: type[Message]) -> Callable[[Random], Message]:
    def page(random: Random) -> Message:
        after = random.choice((b"", b"", b"k1", b"q1", random.randbytes(8)))
        names = {"prefix": random.choice((b"", b"k", b"q"))}
        if "queue" in request.DESCRIPTOR.fields_by_name:
            names = {"queue": one_of(random, QUEUES)}
        elif "key" in request.DESCRIPTOR.fields_by_name:
            names = {"key": one_of(random, KEYS)}
        return request(after=after, limit=random.choice((0, 1, 100)), **names)

    return page


_SLICE, _ADMIN, _BULK = "/shoal.v1.SliceService/", "/shoal.v1.AdminService/", "/shoal.v1.BulkService/"
SESSION = f"{_SLICE}Session"
IMPORT = f"{_BULK}Import"
UNARY: dict[str, Callable[[Random], Message]] = {
    f"{_SLICE}Declare": _declare,
    f"{_SLICE}Bind": _bind,
    f"{_SLICE}Unbind": lambda random: wire.UnbindRequest(
        queue=one_of(random, QUEUES), keys=some(random, KEYS), discard=random.random() < 0.5
    ),
    f"{_SLICE}Publish": _publish,
    f"{_SLICE}Pull": lambda random: wire.PullRequest(pull=pull(random)),
    f"{_SLICE}Ack": _ack,
    f"{_SLICE}Nack": _nack,
    f"{_SLICE}Drop": lambda random: wire.DropRequest(
        queue=one_of(random, QUEUES), if_unused=random.random() < 0.3, if_empty=random.random() < 0.3
    ),
    f"{_SLICE}Describe": lambda random: wire.DescribeRequest(describe=describe(random)),
    f"{_SLICE}Purge": lambda random: wire.PurgeRequest(queue=one_of(random, QUEUES)),
    f"{_ADMIN}Figures": lambda _: admin.FiguresRequest(),
    f"{_ADMIN}ListQueues": _page(admin.ListQueuesRequest),
    f"{_ADMIN}ListKeys": _page(admin.ListKeysRequest),
    f"{_ADMIN}ListMembers": _page(admin.ListMembersRequest),
    f"{_ADMIN}ListBindings": _page(admin.ListBindingsRequest),
    f"{_BULK}ImportStatus": lambda random: bulk.ImportStatusRequest(run=one_of(random, PRODUCERS)),
}
"""The functions that make a proper request, by method."""


def imports(random: Random) -> bytes:
    """Returns the change of an import's chunk."""
    queues, counts, keys = _memberships(random)
    starts = [one_of(random, START_VALUES) for _ in keys] if random.random() < 0.3 else []
    step = wire.Imports(queues=queues, key_counts=counts, keys=keys, starts=starts)
    return wire.Change(steps=[wire.Step(imports=step)]).SerializeToString()


def import_chunk(run: bytes, number: int, change: bytes) -> bytes:
    """Returns a chunk of an import, with the right checksum, so that it is not refused for a wrong one."""
    request = bulk.ImportRequest(run=run, chunk=number, change=change, checksum=crc32(change))
    return request.SerializeToString()
