"""Small parts of large chunks: they travel alone, and what that takes is bounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.limits import CHUNK_MESSAGES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.limits import CUT_SHARE, DELIVERIES_FLOOR_BYTES
from shoal_slice_node.core.read.reading import peek
from shoal_slice_node.core.turns import finish

from .core_driver import CoreDriver, bind, bodies_of, declare, every_second, publish, with_done

BODY_BYTES = 500
BODIES = [b"%d" % number + bytes(BODY_BYTES) for number in range(CHUNK_MESSAGES_MAX)]
DONE = every_second(CHUNK_MESSAGES_MAX // 2 - 1)
LEFT = sorted(set(range(1, CHUNK_MESSAGES_MAX + 1)) - {low for low, _ in DONE})


def one_chunk() -> CoreDriver:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    core.change(publish("k", *BODIES))
    return core


def attached(core: CoreDriver) -> list[wire.Delivery]:
    session = core.session(window_bytes=8 << 20)
    core.attach(session, "q", messages=100_000, size=1 << 30)
    found = core.deliveries(session)
    assert session.under_way_bytes == 0 and core.dispatcher.shares.deliveries.used_bytes == 0
    return found


def pulled(core: CoreDriver) -> list[wire.Delivery]:
    return core.pull(core.session(), "q", 1_000)


def peeked(core: CoreDriver) -> list[wire.Delivery]:
    return finish(peek(core.state, core.tables.queue_by_name.get(b"q") or b"", 1_000, 1 << 20))


@pytest.mark.parametrize("read", [attached, pulled, peeked])
def test_what_lies_between_done_ranges_travels_without_the_rest_of_its_chunk(
    read: Callable[[CoreDriver], list[wire.Delivery]],
) -> None:
    """2,048 messages of a megabyte together came in 4 GiB."""
    core = one_chunk()
    with_done(core, "q", ["k"], DONE)
    found = read(core)
    messages = [message for delivery in found for message in bodies_of(delivery)]
    assert messages == [("k", offset, BODIES[offset - 1]) for offset in LEFT[: len(messages)]]
    assert len(messages) >= 1_000
    assert sum(len(delivery.chunk) for delivery in found) <= 2 * sum(len(body) for _, _, body in messages)


def test_a_pull_of_one_message_is_not_given_the_chunk() -> None:
    core = one_chunk()
    [delivery] = core.pull(core.session(), "q", 1)
    assert bodies_of(delivery) == [("k", 1, BODIES[0])] and len(delivery.chunk) < 2 * len(BODIES[0])


def test_large_parts_and_whole_chunks_travel_as_they_were_stored() -> None:
    core = one_chunk()
    part = CHUNK_MESSAGES_MAX // CUT_SHARE
    with_done(core, "q", ["k"], [(part + 1, CHUNK_MESSAGES_MAX)])
    large, small = attached(core)
    assert large.chunk == encode_chunk(BODIES) and (large.first, large.low, large.to) == (1, 1, part + 1)
    assert small.first == small.low == CHUNK_MESSAGES_MAX and bodies_of(small)[0][2] == BODIES[-1]


def test_a_part_keeps_its_headers_and_tells_how_often_it_came() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    bodies = [b"%d" % number + bytes(100) for number in range(100)]
    chunk = encode_chunk(bodies, [{"number": b"%d" % number} for number in range(100)])
    core.change(wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[chunk])))
    first, second = core.session(), core.session()
    core.attach(first, "q")
    core.take(first)
    core.ack(first, "k", 1, 50)
    core.ack(first, "k", 52, 101)
    core.dispatcher.close(first)
    core.attach(second, "q")
    [delivery] = core.deliveries(second)
    assert (delivery.low, delivery.to, delivery.redelivered) == (50, 52, 1)
    part = parse_chunk(delivery.chunk)
    assert delivery.first == 50 and list(part.bodies) == bodies[49:51]
    assert [headers.fields["number"] for headers in part.headers] == [b"49", b"50"]


def test_a_session_holds_what_its_parts_take() -> None:
    core = one_chunk()
    with_done(core, "q", ["k"], DONE)
    session = core.session(window_bytes=DELIVERIES_FLOOR_BYTES)
    core.attach(session, "q", messages=100_000, size=1 << 30)
    core.pump()
    parcels = session.waiting.values()
    assert len(parcels) >= DELIVERIES_FLOOR_BYTES // (3 * BODY_BYTES)
    assert session.under_way_bytes == sum(parcel.cost_bytes for parcel in parcels) < 2 * DELIVERIES_FLOOR_BYTES
