"""Nothing that may come out of turn is left lying: random clients beside hundreds that do not read, with queues of all
kinds, read what they get, and have all that there is room for, once nothing is under way to their connection."""

from __future__ import annotations

from random import Random

import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.options import QueueOptions
from shoal_slice_node.core.dispatch.parcels import parcel_bytes
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import LARGE_DELIVERY_BYTES

from .core_driver import bind, publish
from .crowd import crowd
from .dead_letters_driver import declare_with
from .delivery_steps import took

SIZES = (1, 1, 1, 900, 5_000, LARGE_DELIVERY_BYTES - 2_000, 2 * LARGE_DELIVERY_BYTES)
OPTIONS = (QueueOptions(), QueueOptions(), QueueOptions(ack_timeout_ms=600_000))
VERY_SMALL_BYTES = 1_700
QUEUES, KEYS, SESSIONS, CONNECTIONS = 5, 14, 6, 3


class Clients:
    """Sessions on a few connections, with queues that have some keys in common."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.core, self.crowd = crowd()
        self.keys = [f"k{number}" for number in range(KEYS)]
        self.queues = [f"q{number}" for number in range(QUEUES)]
        self.bodies: dict[tuple[bytes, int], int] = {}
        self.heads = dict.fromkeys(self.keys, 1)
        for queue in self.queues:
            self.core.change(declare_with(queue, random.choice(OPTIONS)), bind(queue, *random.sample(self.keys, 5)))
        self.sessions: list[Session] = []
        for _ in range(SESSIONS):
            self.open()

    def open(self) -> None:
        session = self.core.session(1 << 20, f"of {self.random.randrange(CONNECTIONS)}")
        self.sessions.append(session)
        for handle, queue in enumerate(self.random.sample(self.queues, 2)):
            self.core.attach(session, queue, handle + 1)

    def publish(self) -> None:
        for _ in range(self.random.choice((1, 1, 3, 10))):
            key = self.random.choice(self.keys)
            size = self.random.choice(SIZES)
            outcome = self.core.change(publish(key, bytes(size)))
            if not outcome.steps[0].refusals:
                self.bodies[key.encode(), self.heads[key]] = size
                self.heads[key] += 1

    def read(self) -> None:
        took(self.core, self.random.choice(self.sessions))

    def read_all(self) -> None:
        """Whose messages a client reads are acked by nobody: windows are wide."""
        while ready := [session for session in self.sessions if session.waiting]:
            for session in ready:
                took(self.core, session)

    def leave(self) -> None:
        session = self.sessions.pop(self.random.randrange(len(self.sessions)))
        self.core.dispatcher.close(session)
        self.open()

    def one_of_the_crowd_reads(self) -> None:
        if ready := [session for session in self.crowd if session.waiting]:
            took(self.core, self.random.choice(ready))

    def step(self) -> None:
        self.random.choice((self.publish, self.publish, self.read, self.read_all, self.leave))()
        if self.random.random() < 0.02:
            self.one_of_the_crowd_reads()
        self.core.now_ms += self.random.choice((0, 1_000))
        self.core.maintain()
        self.core.pump()

    def left_lying(self) -> list[str]:
        """What might have come, to sessions of connections to which nothing is under way. Of what is not very small it
        depends on what others hold: nobody is looked at for what they let go."""
        busy = {session.connection for session in self.sessions if session.under_way_bytes or session.waiting}
        found = []
        for session in self.sessions:
            if session.connection in busy:
                continue
            for attachment in session.attachments.values():
                for stream in attachment.feed.lagging.values():
                    cost_bytes = self.cost_bytes(stream)
                    if (
                        0 < cost_bytes < VERY_SMALL_BYTES
                        and attachment.window_open
                        and session.has_room_for(cost_bytes)
                    ):
                        found.append(f"{stream.key!r} {stream.lowest} of {attachment.feed.name!r}, {cost_bytes} bytes")
        return found

    def cost_bytes(self, stream: Stream) -> int:
        """The memory of what is next of a stream; 0: nothing is, or it is not known."""
        size = self.bodies.get((stream.key, stream.lowest))
        return 0 if size is None else parcel_bytes(encode_chunk([bytes(size)]), stream.key)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_that_may_come_out_of_turn_is_left_lying(seed: int) -> None:
    clients = Clients(Random(seed))
    waited = 0
    for _ in range(120):
        clients.step()
        assert not clients.left_lying()
        if clients.random.random() < 0.5:
            clients.read_all()
            assert not clients.left_lying()
        waited += any(feed.lagging for feed in clients.core.dispatcher.feeds.values())
    assert waited > 50
