"""The fake keeps delayed publishes, and what has a ttl, until it is told that their time has come, or is over."""

from __future__ import annotations

import shoal
from shoal.testing import FakeCluster
from shoal.testing.fake_state import FakeState
from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire


def change(state: FakeState, number: int, *steps: wire.Step) -> wire.Outcome:
    data = wire.Change(steps=steps).SerializeToString()
    return wire.Outcome.FromString(state.change(b"p" * 16, number, 0, data))


def test_what_waits_is_published_in_the_order_of_its_time() -> None:
    state = FakeState("s01", lambda key: "s01", lambda: 1)
    binds = wire.Binds(queues=[b"q"], key_counts=[1], keys=[b"k"])
    change(state, 1, wire.Step(declares=wire.Declares(queues=[b"q"])), wire.Step(binds=binds))
    for number, (body, time_ms) in enumerate(((b"second", 9), (b"first", 7)), 2):
        step = wire.Publishes(keys=[b"k"], chunks=[encode_chunk([body])], not_before_ms=time_ms)
        outcome = change(state, number, wire.Step(publishes=step)).steps[0]
        assert (list(outcome.offsets), list(outcome.queues)) == ([0], [0])
    assert not state.keys[b"k"].chunks
    state.publish_due()
    assert [chunk for _, _, chunk in state.keys[b"k"].chunks] == [encode_chunk([b"first"]), encode_chunk([b"second"])]
    assert not state.delayed


async def test_what_has_a_ttl_is_valid_until_the_cluster_is_told() -> None:
    cluster = FakeCluster()
    gaps: list[shoal.Gap] = []
    async with cluster.connect() as broker:
        await broker.declare("q")
        await broker.bind("q", "k")
        await broker.publish("k", b"short", ttl=60)
        await broker.publish("k", b"long")
        assert [message.body for message in await broker.peek("q", 9)] == [b"short", b"long"]
        cluster.expire()
        assert [message.body for message in await broker.pull("q", 9, on_gap=gaps.append)] == [b"long"]
    assert [(gap.key, gap.first, gap.end, gap.why) for gap in gaps] == [("k", 1, 2, "expired")]
