"""Purge over slices: in as many parts as it takes, counted once though a stream is cut."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from tests.client.fake_cluster import FakeCluster


async def test_a_purge_goes_to_every_slice_until_each_is_done(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue = cluster.queue_with_home("s01")
    keys = [cluster.key_of(name, prefix) for name in ("s01", "s02") for prefix in ("a", "b")]
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, keys)
    for key in keys:
        await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    slice_ = cluster.slices["s01"]
    applied = slice_.state.applied
    slice_.answering.clear()
    purging = asyncio.create_task(fake_broker.purge(queue))
    async with asyncio.timeout(10):
        while slice_.state.applied == applied:  # noqa: ASYNC110 - fakes tell nobody of every change
            await asyncio.sleep(0.005)
    slice_.cut()
    slice_.answering.set()
    assert await purging == 12
    assert (await fake_broker.describe(queue)).messages == 0
    assert slice_.state.applied == applied + 2, "one part for each key, none of them twice"


async def test_a_purge_of_no_queue_is_refused(fake_broker: shoal.Broker) -> None:
    with pytest.raises(shoal.NoSuchQueue, match="nobody"):
        await fake_broker.purge("nobody")
