"""A node where nothing happens still does what is due: leases end, changes are checkpointed and archived."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters import recovery
from shoal_slice_node.adapters.steps import StepWatch
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_reader import list_segments

from .archive_steps import archived_records
from .brokers import connected, running
from .raw_session import RawSession

WAIT_S = 60


async def until(done: Callable[[], bool]) -> None:
    """Returns once it is so; asks nothing of the broker."""
    async with asyncio.timeout(WAIT_S):
        while not done():  # noqa: ASYNC110 - another task's doing
            await asyncio.sleep(0.01)


async def test_a_lease_that_ends_wakes_the_queues_consumer(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Publish(wire.PublishRequest(key=b"@q", chunk=Chunk(bodies=[b"x"])))
        session = await RawSession.open(stub)
        pull = wire.PullRequest(pull=wire.Pull(queue=b"q", messages_max=1, lease_ms=1000))
        assert (await stub.Pull(pull)).deliveries
        await session.attach([b"q"])
        assert session.offsets(1) == [], "what is leased is not given to others"
        await session.read_until(lambda: session.offsets(1) == [1], WAIT_S)
        session.call.cancel()


async def test_the_last_changes_are_checkpointed_once_they_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "FREEZE_LIMITS", recovery.FREEZE_LIMITS._replace(delta_age_ms=50))
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        await SliceServiceStub(channel).Declare(wire.DeclareRequest(queue=b"q"))
        lsn = broker.node.commit.applied_lsn
        await until(lambda: broker.store.checkpoint_lsn >= lsn)


async def test_a_segment_is_archived_at_its_age_though_it_is_not_full(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    place.mkdir()
    data = tmp_path / "data"
    async with (
        running(data, archive=place, archive_every_s=0.1) as broker,
        connected(broker, data) as channel,
    ):
        stub = SliceServiceStub(channel)
        for queue in (b"a", b"b"):
            await stub.Declare(wire.DeclareRequest(queue=queue))
            lsn = broker.node.commit.applied_lsn
            await until(lambda: len(archived_records(DiskFiles(), place)) >= lsn)  # noqa: B023 - called here only
        assert len(list_segments(DiskFiles(), place)) >= 2
        assert [record.lsn for record in archived_records(DiskFiles(), place)] == list(range(1, lsn + 1))


async def test_without_an_age_a_segment_that_is_not_full_stays(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    place.mkdir()
    data = tmp_path / "data"
    async with running(data, archive=place) as broker, connected(broker, data) as channel:
        await SliceServiceStub(channel).Declare(wire.DeclareRequest(queue=b"q"))
        await broker.checkpointed()
        assert not list(place.glob("*"))


async def test_the_longest_step_is_also_looked_for_in_ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node that does nothing else."""
    async with running(tmp_path) as broker:
        ticks: list[float] = []
        measured: list[float] = []
        tick = broker.node.tick

        def ticked(now_ms: int, wall_ms: int) -> None:
            ticks.append(time.perf_counter())
            tick(now_ms, wall_ms)

        monkeypatch.setattr(StepWatch, "done", lambda steps, began: measured.append(began))
        monkeypatch.setattr(broker.node, "tick", ticked)
        await until(lambda: len(ticks) > 3)
        begun = [began for began in measured if began < ticks[2]]
        assert len(begun) >= 3, "each tick was measured, from before it began"
        assert sum(ticks[0] <= began < ticks[2] for began in measured) >= 2
