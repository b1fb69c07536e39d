"""Slices that lose their lead again and again, under load: their processes stay, and no message is lost or doubled."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

import shoal
from shoal_local.cluster import LocalCluster
from shoal_ops.commands.status import tell_status
from shoal_ops.replay.run import Replay
from shoal_runtime.tasks import Tasks
from shoal_slice_node.storage.offline import check_path

from .replay_sources import CHANNEL_EVENTS, CHURN_EVENTS, shortened
from .role_changes import Leads, leads_of

KEYS = [f"room-{number}" for number in range(12)]
CHANGES = 6
PUBLISHERS = 4
SEED = 20
WAIT_S = 120


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path / "cluster", slices=2) as cluster:
        yield cluster


async def check_data(cluster: LocalCluster) -> None:
    """Ends the cluster, and looks at everything in its folders."""
    await cluster.stop()
    for name in cluster.slices:
        assert check_path(cluster.log_folder.parent / name).sound


class Told:
    """What receipts and deliveries said. `consumed`: bodies by key and offset, with how often each came."""

    def __init__(self) -> None:
        self.receipts: dict[str, dict[int, bytes]] = defaultdict(dict)
        self.consumed: dict[str, dict[int, bytes]] = defaultdict(dict)

    def take(self, message: shoal.Message) -> None:
        key = str(message.key)
        known = self.consumed[key].setdefault(message.offset, message.body)
        assert known == message.body, f"{key}, {message.offset} names two messages"

    @property
    def complete(self) -> bool:
        return all(len(self.consumed[key]) >= len(receipts) for key, receipts in self.receipts.items())


async def publish_until(stop: asyncio.Event, broker: shoal.Broker, number: int, told: Told) -> None:
    """One message after the other; each has a body of its own."""
    random, count = Random(SEED + number), 0
    while not stop.is_set():
        key, body = random.choice(KEYS), b"%d of %d" % (count, number)
        receipt = await broker.publish(key, body, mandatory=True, deadline_s=60)
        assert receipt.offset not in told.receipts[key], "one offset was given twice"
        told.receipts[key][receipt.offset] = body
        count += 1


async def consume(inbox: shoal.Inbox, told: Told) -> None:
    """Acks all but some, which come again after each change."""
    random = Random(SEED)
    async for message in inbox:
        told.take(message)
        if random.random() < 0.9:
            await message.ack()


async def change_roles(cluster: LocalCluster, leads: Leads, told: Told) -> None:
    """Takes each slice's lead several times; in between, messages are published."""
    for _ in range(CHANGES):
        for name in cluster.slices:
            before = sum(map(len, told.receipts.values()))
            epoch = await leads.depose(name)
            await leads.led_above(name, epoch)
            async with asyncio.timeout(WAIT_S):
                while sum(map(len, told.receipts.values())) < before + 50:  # noqa: ASYNC110 - counts
                    await asyncio.sleep(0.01)


async def test_slices_that_lose_their_lead_under_load_lose_and_double_nothing(cluster: LocalCluster) -> None:
    pids = [cluster.pid(name) for name in cluster.slices]
    told, stop = Told(), asyncio.Event()
    async with (
        leads_of(cluster) as leads,
        shoal.connect(cluster.redirector) as broker,
        shoal.connect(cluster.redirector) as other,
        asyncio.timeout(WAIT_S),
        Tasks("test") as tasks,
    ):
        epochs = [(await leads.record(name)).epoch for name in cluster.slices]
        await broker.declare("anna")
        await broker.bind("anna", KEYS)
        async with other.consume("anna", drop_repeats=False) as inbox:
            consuming = tasks.start("consume", consume(inbox, told), awaited=True)
            publishing = [
                tasks.start(f"publish {number}", publish_until(stop, broker, number, told), awaited=True)
                for number in range(PUBLISHERS)
            ]
            await change_roles(cluster, leads, told)
            stop.set()
            await asyncio.gather(*publishing)
            while not told.complete:
                assert not consuming.done(), consuming.exception()
                await asyncio.sleep(0.05)
            consuming.cancel()
        assert [cluster.pid(name) for name in cluster.slices] == pids, "the processes are the same"
        for name, epoch in zip(cluster.slices, epochs, strict=True):
            assert (await leads.record(name)).epoch >= epoch + 2 * CHANGES
    for key, receipts in told.receipts.items():
        assert told.consumed[key] == receipts, key
        assert sorted(receipts) == list(range(1, len(receipts) + 1)), "no message was stored twice"
    assert sum(map(len, told.receipts.values())) > CHANGES * 50
    await check_data(cluster)


async def test_a_slice_whose_lease_is_taken_serves_again_in_the_same_process(cluster: LocalCluster) -> None:
    name = cluster.slices[0]
    pid = cluster.pid(name)
    async with (
        leads_of(cluster) as leads,
        shoal.connect(cluster.redirector) as broker,
        asyncio.timeout(WAIT_S),
    ):
        await broker.declare("anna")
        await broker.bind("anna", KEYS)
        async with broker.consume("anna") as inbox:
            for key in KEYS:
                await broker.publish(key, b"before")
            epoch = await leads.revoke(name)
            led = await leads.led_above(name, epoch)
            for key in KEYS:
                await broker.publish(key, b"after", deadline_s=60)
            bodies: dict[str, list[bytes]] = defaultdict(list)
            while sum(map(len, bodies.values())) < 2 * len(KEYS):
                message = await anext(inbox)
                bodies[str(message.key)].append(message.body)
                await message.ack()
            assert all(found == [b"before", b"after"] for found in bodies.values())
        assert led.leader_address == cluster.addresses[name], "clients find it where it was"
    assert cluster.pid(name) == pid
    await check_data(cluster)


async def test_roles_that_change_in_the_middle_change_no_queues_content(cluster: LocalCluster, tmp_path: Path) -> None:
    replay = Replay(cluster.redirector, shortened(tmp_path))
    under_way = asyncio.Event()
    replay.tally.on_event = lambda done: under_way.set() if 4 * done > CHANNEL_EVENTS + CHURN_EVENTS else None

    async def lose_roles(leads: Leads) -> None:
        await under_way.wait()
        for _ in range(2):
            for name in cluster.slices:
                await leads.led_above(name, await leads.depose(name))

    async with leads_of(cluster) as leads, Tasks("test") as tasks, asyncio.timeout(WAIT_S):
        losing = tasks.start("lose roles", lose_roles(leads))
        report = await replay.run()
        await losing
    assert report.first_mismatches == ()
    assert (report.events, report.deliveries) == (CHANNEL_EVENTS + CHURN_EVENTS, replay.expectation.deliveries)
    await check_data(cluster)


async def test_status_says_that_a_slices_node_does_not_lead(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    name = cluster.slices[0]

    async def problem() -> str:
        await tell_status(cluster.redirector, as_json=True)
        (found,) = (one for one in json.loads(capsys.readouterr().out)["slices"] if one["slice"] == name)
        return str(found["problem"])

    assert await problem() == ""
    async with leads_of(cluster) as leads, asyncio.timeout(WAIT_S):
        async with leads.held(name):
            wanted = f"node n01 does not lead slice {name} now, and tries to lead it again"
            while wanted not in await problem():  # At first its lease may just be over.
                pass
        while await problem():
            pass
