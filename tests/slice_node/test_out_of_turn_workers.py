"""Of many consumers of one queue, beside hundreds that do not read, the one that has room for what is next is found,
whatever the others have room for, in few turns."""

from __future__ import annotations

from random import Random

import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.options import QueueOptions
from shoal_slice_node.core.dispatch.acks_in_flight import NackTerms
from shoal_slice_node.core.dispatch.parcels import parcel_bytes
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import FREED_STREAMS_MAX
from shoal_slice_node.core.rows.key_row import ID
from tests.fuzz.small_limits import patched

from .core_driver import CoreDriver, bind, declare, drop, publish
from .crowd import CHUNK, crowd
from .dead_letters_driver import declare_with
from .delivery_steps import took
from .large_readers import rest

JOB = bytes(3_500)


def workers(
    count: int, unread_bytes: int, timeout_ms: int, keys: list[str], window: int = 1_000, first: bool = False
) -> tuple[CoreDriver, list[Session]]:
    """Workers, each on its own connection, that consume jobs. All but the last hold a message of another queue unread,
    so that less may come to them. Nobody is in line: a large job is next of a key. `first`: one more queue, with a
    consumer that has much room, gets what comes before the workers."""
    core, _ = crowd()
    if first:
        core.change(declare_with("first", QueueOptions(ack_timeout_ms=600_000)), bind("first", *keys))
        core.attach(core.session(1 << 20, "first"), "first")
        core.pump()
    core.change(declare_with("jobs", QueueOptions(ack_timeout_ms=timeout_ms)), bind("jobs", "large", *keys))
    sessions = [core.session(1 << 20, f"w{number}") for number in range(count)]
    for number, session in enumerate(sessions):
        own = f"own{number}"
        core.change(declare(own), bind(own, own))
        core.attach(session, own, 1)
    core.pump()
    for number in range(count - 1):
        core.change(publish(f"own{number}", bytes(unread_bytes)))
    core.pump()
    for session in sessions:
        core.attach(session, "jobs", 2, messages=window)
    core.pump()
    core.change(publish("large", CHUNK))
    core.pump()
    return core, sessions


@pytest.mark.parametrize("timeout_ms", [0, 600_000])
@pytest.mark.parametrize("unread_bytes", [500, 1_500, 2_000])
@pytest.mark.parametrize("count", [17, 40, 90])
def test_the_one_that_has_room_for_it_is_found(count: int, unread_bytes: int, timeout_ms: int) -> None:
    """Where the others had room for the least, and not for it, 16 of all were asked for each message: of 40 the free
    one was never found."""
    core, sessions = workers(count, unread_bytes, timeout_ms, ["small"])
    for _ in range(5):
        core.change(publish("small", JOB))
        rest(core)
        assert took(core, sessions[-1]) == [len(JOB)]


@pytest.mark.parametrize("timeout_ms", [0, 600_000])
def test_it_is_found_for_each_of_many_keys(timeout_ms: int) -> None:
    keys = [f"k{number}" for number in range(20)]
    core, sessions = workers(40, 1_500, timeout_ms, keys)
    core.change(*(publish(key, JOB) for key in keys))
    rest(core)
    got: list[int] = []
    while sessions[-1].waiting:
        got += took(core, sessions[-1])
    assert got == [len(JOB)] * 20


@pytest.mark.parametrize("read_before", [False, True])
@pytest.mark.parametrize("timeout_ms", [0, 600_000])
@pytest.mark.parametrize("count", [1, 2, 40])
def test_a_part_comes_to_one_with_a_window_for_a_part(count: int, timeout_ms: int, read_before: bool) -> None:
    """Nobody was asked for a part of a chunk that is kept since another queue read it (`read_before`), and of a new one
    only with an ack timeout, or where there are many."""
    core, sessions = workers(count, 1_500, timeout_ms, ["small"], window=1, first=read_before)
    core.change(publish("small", JOB[:2_000], JOB[2_000:]))
    rest(core)
    taken = core.dispatcher.take(sessions[-1], 1 << 20)
    assert [(one.low, one.to) for one in taken.deliveries] == [(1, 2)]


@pytest.mark.parametrize("keys", [20, 100, 300])
def test_what_is_small_is_found_among_many_keys_with_something_new(keys: int) -> None:
    """Of the keys for which messages came at once, the last 32 were looked at."""
    core, sessions = workers(1, 0, 600_000, [f"k{number}" for number in range(keys)])
    core.change(*(publish(f"k{number}", b"x" if number == 3 else CHUNK) for number in range(keys)))
    rest(core)
    assert took(core, sessions[-1]) == [1]


@pytest.mark.parametrize("delay_ms", [0, 1_000])
@pytest.mark.parametrize("keys", [20, 60])
def test_what_comes_back_is_found_among_many_keys(keys: int, delay_ms: int) -> None:
    """With a large one behind it, and in more than 32 other keys, it was not looked at."""
    core, sessions = workers(2, 4_000, 0, [f"k{number}" for number in range(keys)])
    core.change(publish("k3", b"x"))
    rest(core)
    assert took(core, sessions[-1]) == [1]
    core.change(publish("k3", CHUNK))
    core.change(*(publish(f"k{number}", CHUNK) for number in range(keys) if number != 3))
    rest(core)
    row = core.tables.key.get(core.state.full_name(b"k3"))
    assert row is not None
    core.dispatcher.nack(sessions[-1].attachments[2], row[ID], 1, 2, NackTerms(delay_ms))
    for _ in range(2):
        core.maintain()
        core.now_ms += delay_ms
    core.maintain()
    rest(core)
    assert took(core, sessions[-1]) == [1]


@pytest.mark.parametrize("kept_max", [4, 1_000])
def test_all_are_asked_once_for_many_keys(kept_max: int) -> None:
    """Of some keys one of all has room, of the others nobody has."""
    count, keys = 90, [f"k{number}" for number in range(40)]
    with patched({"LEFT_OUT_KEPT_MAX": kept_max, "OUT_OF_LINE_LOOKS_MAX": 1}):
        core, sessions = workers(count, 100, 600_000, keys)
        core.change(*(publish(key, CHUNK if number % 4 else JOB) for number, key in enumerate(keys)))
        pump, turns, most = core.dispatcher._pump, 0, 0
        while core.dispatcher.turn():
            turns += 1
            most = max(most, *(len(left._kept) for left in pump._left_out.values()), 0)
        got: list[int] = []
        while sessions[-1].waiting:
            got += took(core, sessions[-1])
    assert got == [len(JOB)] * 10
    assert 0 < most <= kept_max
    rounds = 3 + (len(keys) // kept_max if kept_max < len(keys) else 0)
    assert turns < rounds * (1 + count // FREED_STREAMS_MAX) + 2 * len(keys) // FREED_STREAMS_MAX


class Crew:
    """Workers of one queue, on connections of their own, who hold something of other queues, or read it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.keys = [f"k{number}" for number in range(random.choice((1, 3, 50)))]
        count = random.choice((2, 17, 33, 60))
        timeout_ms = random.choice((0, 600_000))
        self.core, self.sessions = workers(count, 0, timeout_ms, self.keys, window=random.choice((3, 1_000)))
        self.bodies: dict[tuple[bytes, int], int] = {}
        self.heads = dict.fromkeys(self.keys, 1)

    def fill_own(self) -> None:
        """Some get what they will not read."""
        for number in range(len(self.sessions)):
            if self.random.random() < 0.8:
                self.core.change(publish(f"own{number}", bytes(self.random.choice((1, 500, 2_000, 4_000)))))
        rest(self.core)

    def publish(self) -> list[str]:
        """Messages of some keys. Returns these."""
        keys = self.random.sample(self.keys, min(len(self.keys), self.random.choice((1, 1, 2, 40))))
        sizes = [self.random.choice((1, 900, 3_500, 6_000, len(CHUNK))) for _ in keys]
        self.core.change(*(publish(key, bytes(size)) for key, size in zip(keys, sizes, strict=True)))
        for key, size in zip(keys, sizes, strict=True):
            self.bodies[key.encode(), self.heads[key]] = size
            self.heads[key] += 1
        rest(self.core)
        return keys

    def read(self) -> None:
        session = self.random.choice(self.sessions)
        taken = self.core.dispatcher.take(session, 1 << 20)
        self.core.dispatcher.sent(session, taken.cost_bytes)
        for one in taken.deliveries:
            if one.key.decode() in self.keys and self.random.random() < 0.8:
                self.core.ack(session, one.key.decode(), one.low, one.to)
        rest(self.core)

    def left_lying(self, keys: list[str]) -> list[str]:
        """What came last, is next of these, and may come to somebody. What waits behind others asks for no look."""
        feed = self.sessions[0].attachments[2].feed
        found = []
        for stream in feed.lagging.values():
            key = stream.key.decode()
            if key not in keys or stream.lowest != self.heads[key] - 1:
                continue
            size = self.bodies[stream.key, stream.lowest]
            cost_bytes = parcel_bytes(encode_chunk([bytes(size)]), stream.key)
            for attachment in feed.attachments.values():
                if attachment.window_open and attachment.session.has_room_for(cost_bytes):
                    found.append(f"{stream.key!r} {stream.lowest}, {cost_bytes} bytes: {attachment.session.connection}")
        return found


@pytest.mark.parametrize("seed", range(12))
def test_what_came_is_not_left_lying_while_a_worker_has_room_for_it(seed: int) -> None:
    random = Random(seed)
    with patched(random.choice(({}, {"LEFT_OUT_KEPT_MAX": 1}, {"OUT_OF_LINE_LOOKS_MAX": 1}, {"FREED_STREAMS_MAX": 1}))):
        crew = Crew(random)
        crew.fill_own()
        for _ in range(60):
            random.choice((crew.read, crew.read, crew.fill_own))() if random.random() < 0.5 else None
            assert not crew.left_lying(crew.publish())


def test_the_pump_rests_when_a_queue_goes_while_keys_of_it_are_to_be_looked_at() -> None:
    keys = [f"k{number}" for number in range(20)]
    core, _ = workers(40, 1_500, 600_000, keys)
    core.change(*(publish(key, JOB) for key in keys))
    pump = core.dispatcher._pump
    while not pump._left_out:
        assert core.dispatcher.turn()
    core.change(drop("jobs"))
    rest(core)
    assert not pump._left_out
