"""Provides the step of live publishes, and checks what comes of them: at most once for each queue, and nothing else."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead

if TYPE_CHECKING:
    from tests.fuzz.world import World


class Lives:
    """Remembers live chunks. Each has a body of its own."""

    def __init__(self) -> None:
        self._sent: dict[bytes, bytes] = {}
        """Chunk -> key."""
        self._came: set[tuple[bytes, bytes]] = set()
        """Chunk and queue."""

    def chunk(self, key: bytes, messages: int) -> bytes:
        number = len(self._sent)
        chunk = encode_chunk([b"live %d.%d" % (number, place) for place in range(messages)])
        self._sent[chunk] = key
        return chunk

    def came(self, queue: bytes, delivery: wire.Delivery) -> None:
        assert self._sent.get(delivery.chunk) == delivery.key, f"{delivery.key!r} brings a live chunk of another key"
        assert (delivery.first, delivery.low, delivery.redelivered) == (0, 0, 0)
        assert (delivery.chunk, queue) not in self._came, f"{queue!r} gets a live chunk of {delivery.key!r} twice"
        self._came.add((delivery.chunk, queue))


def publish_live(world: World, random: Random) -> None:
    """Publishes live, and sometimes a stored chunk behind it."""
    from tests.fuzz.changes import one_publish
    from tests.fuzz.world import KEYS, QUEUES

    steps = []
    for _ in range(random.choice((1, 1, 2))):
        step = wire.Publishes(mandatory=random.random() < 0.2, live=True)
        for _ in range(random.choice((1, 1, 3))):
            key = random.choice(KEYS) if random.random() < 0.8 else b"@" + random.choice(QUEUES)
            step.keys.append(key)
            step.chunks.append(world.lives.chunk(key, random.choice((1, 1, 3))))
        steps.append(wire.Step(publishes=step))
    before = world.node.state.lsn if not world.node.busy else None

    def then(outcome: wire.Outcome) -> None:
        assert not any(offset for step in outcome.steps for offset in step.offsets)
        assert before in (None, world.node.state.lsn), "a live publish was journaled"

    world.send(ChangeHead(NO_PRODUCER, 0, 0), wire.Change(steps=steps).SerializeToString(), then)
    if random.random() < world.prompt:
        world.settle()
    elif random.random() < 0.5:
        world.change(random, one_publish(world, random))
