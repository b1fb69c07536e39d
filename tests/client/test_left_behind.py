"""A flush of the connection waits for no pull whose caller has left, and names the slices that it does wait for."""

from __future__ import annotations

import asyncio
import time

import pytest

import shoal
from shoal_ops.commands import verbs
from tests.client.calls import bound, until
from tests.client.fake_cluster import FakeCluster
from tests.client.fake_slice import FakeSlice

PROMPT_S = 5.0
"""Below the deadline of the connection here."""


@pytest.fixture(autouse=True)
def begins_with_s01_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.pulling.random", lambda: 0.0)
    monkeypatch.setattr("shoal.pulling.PULL_PATIENCE_S", 0.05)


async def on_all(broker: shoal.Broker, cluster: FakeCluster) -> tuple[str, FakeSlice]:
    """A queue with two messages at each slice, and s01, where it is at home."""
    queue, key = await bound(broker, cluster)
    for each in (key, cluster.key_of("s02", "second"), cluster.key_of("s03", "third")):
        await broker.bind(queue, each)
        await broker.publish_many(each, [f"{each} 1".encode(), f"{each} 2".encode()])
    return queue, cluster.slices["s01"]


def pulls(slice_: FakeSlice) -> int:
    return sum(frame.HasField("pull") for frame in slice_.frames)


async def test_a_silent_slice_that_a_pull_skipped_holds_up_no_flush(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, silent = await on_all(fake_broker, cluster)
    silent.answering.clear()
    for _ in range(2):
        found = await fake_broker.pull(queue, 2)
        assert len(found) == 2
        await fake_broker.ack(*found)
        async with asyncio.timeout(PROMPT_S):
            await fake_broker.flush()
    assert pulls(silent) == 2
    with pytest.raises(shoal.DeadlineExceeded):
        await fake_broker.pull(queue, 2, deadline_s=0.2)
    async with asyncio.timeout(PROMPT_S):
        await fake_broker.flush()
    silent.answering.set()
    await until(lambda: not fake_broker.connection.routing.session("s01")._ledger)
    await fake_broker.flush()
    assert [message.redelivered for message in await fake_broker.pull(queue, 9)] == [0, 0], "they were given back"


async def test_a_flush_goes_on_once_a_pull_leaves(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.pulling.PULL_PATIENCE_S", 0.5)
    queue, silent = await on_all(fake_broker, cluster)
    silent.ignored = {"pull"}
    pulling = asyncio.create_task(fake_broker.pull(queue, 6, deadline_s=60))
    await until(lambda: pulls(silent) == 1)
    with pytest.raises(shoal.DeadlineExceeded, match="slice s01"):
        await fake_broker.flush(deadline_s=0.01)
    async with asyncio.timeout(PROMPT_S):
        await fake_broker.flush()
    assert len(await pulling) == 4
    silent.cut()


async def test_a_flush_names_the_slices_that_it_waited_for(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, skipped = await on_all(fake_broker, cluster)
    skipped.answering.clear()
    found = await fake_broker.pull(queue, 9)
    assert len(found) == 4
    lacking = cluster.slices["s03"]
    lacking.answering.clear()
    await fake_broker.ack(*found)
    with pytest.raises(shoal.DeadlineExceeded, match="flush at slice s03: no answer") as caught:
        await fake_broker.flush(deadline_s=0.3)
    assert caught.value.subject == "flush at slice s03"
    fake_broker.publish_nowait(cluster.key_of("s02", "second"), b"x")
    cluster.slices["s02"].answering.clear()
    with pytest.raises(shoal.DeadlineExceeded, match="flush at slice s02, s03: no answer"):
        await fake_broker.flush(deadline_s=0.3)
    for slice_ in cluster.slices.values():
        slice_.answering.set()
    await fake_broker.flush()


async def test_a_close_waits_for_what_a_pull_took_that_left(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    """So that it is given back, and counts no delivery."""
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10) as closing:
        queue, slice_ = await on_all(closing, cluster)
        slice_.answering.clear()
        assert len(await closing.pull(queue, 4)) == 4
        asyncio.get_running_loop().call_later(0.2, slice_.answering.set)
    found = await fake_broker.pull(queue, 2)
    assert [message.redelivered for message in found] == [0, 0]


async def test_the_command_pulls_what_the_others_have(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verbs, "VERB_DEADLINE_S", 1.0)
    monkeypatch.setattr("shoal.broker.CLOSE_S", 0.1)
    queue, silent = await on_all(fake_broker, cluster)
    silent.answering.clear()
    began = time.monotonic()
    await verbs.pull(cluster.redirectors[0].address, queue, 4, False, True)
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert time.monotonic() - began < PROMPT_S
    silent.answering.set()
    assert (await fake_broker.describe(queue)).messages == 2
