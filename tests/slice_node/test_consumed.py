"""How many of a key's queues are consumed now, as receipts tell it: not those whose messages only rest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shoal_contract.options import DURABLE
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.core.dispatch.acks_in_flight import NackTerms
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.range_room import RangeRoom
from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.dispatch.stretches import Rests
from shoal_slice_node.core.dispatch.unconsumed import Unconsumed
from shoal_slice_node.core.rows.key_row import ID

from .brokers import connected, running
from .core_driver import bind, declare, drop, publish
from .live_steps import consumed

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub


async def test_the_receipt_of_a_stored_publish_counts_no_queue_whose_messages_only_rest(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub: SliceServiceAsyncStub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
        published = wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"x"]))
        assert (await stub.Publish(published)).consumed == 0
        await stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"q", lease_ms=600_000)))
        assert (await stub.Publish(published)).consumed == 1
        back = wire.Ack(key=b"k", low=1, to=2, queues=[b"q"])
        await stub.Nack(wire.NackRequest(nacks=wire.Nacks(messages=[back], delay_ms=600_000)))
        assert broker.dispatcher.feeds and not broker.dispatcher.is_consumed(b"q")
        assert (await stub.Publish(published)).consumed == 0


@pytest.mark.parametrize("others", [0, 2])
def test_a_queue_is_live_from_when_it_is_taken_until_it_is_left(others: int) -> None:
    """Whatever rests of other queues. Nothing is left of what came back, or of a queue that was dropped meanwhile."""
    core, session = consumed("k")
    registry = core.dispatcher.registry
    leaving = core.session()
    for handle in range(10, 10 + others):
        core.change(declare(f"q{handle}"), bind(f"q{handle}", "j"))
        core.attach(leaving, f"q{handle}", handle)
    core.change(publish("k", b"x"), publish("j", b"x"))
    key_id, other_id = ((core.tables.key.get(core.state.full_name(key)) or b"")[ID] for key in (b"k", b"j"))
    core.take(leaving)
    for attachment in leaving.attachments.values():
        core.dispatcher.nack(attachment, other_id, 1, 2, NackTerms(600_000))
    core.dispatcher.close(leaving)
    core.pump()
    assert len(registry.unconsumed) == others
    assert core.take(session) and registry.consumed_of_key(key_id, 1) == 1
    for end in (0, 1):
        core.dispatcher.nack(session.attachments[1], key_id, 1, 2, NackTerms(60_000))
        core.dispatcher.close(session)
        core.pump()
        assert (len(registry.by_key[key_id]), registry.consumed_of_key(key_id, 1)) == (1, 0)
        if end:
            core.change(drop("q"))
            core.pump()
            assert registry.consumed_of_key(key_id, 1) == 0 and len(registry.feeds) == others
        else:
            session = core.session()
            core.attach(session, "q")
            assert registry.consumed_of_key(key_id, 1) == 1
            core.maintain()
            core.now_ms += 120_000
            core.maintain()
            assert core.take(session)
    assert len(registry.unconsumed) == others


def test_many_that_were_not_consumed_once_cost_nothing_later() -> None:
    """A set that lost its members is looked through as slowly as when it had them: each publish took 130 us, for ever,
    once a session with 40,000 queues had left."""
    unconsumed = Unconsumed()
    feeds = [
        Feed(number.to_bytes(8, "big"), b"q", DURABLE, None, Rests(), RangeRoom(Share("attached", 1 << 40)))
        for number in range(5_000)
    ]
    for feed in feeds:
        unconsumed.add(feed)
    assert set(unconsumed) == set(feeds)
    for feed in feeds[3:]:
        unconsumed.discard(feed)
        unconsumed.discard(feed)
    assert set(unconsumed) == set(feeds[:3]) and len(unconsumed) == 3
    assert sys.getsizeof(unconsumed._feeds) < sys.getsizeof(set(feeds)) // 30
