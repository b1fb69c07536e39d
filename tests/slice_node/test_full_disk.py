"""A node on a disk that is really full goes on, says so, and is well again by itself (operator brief 3: H1, M3, M4)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import ResourceExhausted
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.storage.limits import SEGMENT_BYTES
from shoal_slice_node.storage.offline import check_path

from .node_process import NodeProcess
from .raw_session import RawSession
from .small_disks import fill, free_bytes, small_disk
from .troubled_node import FULL, WAIT_S, Troubled, troubled

MIB = 1 << 20
BODY = bytes(1_000_000)


async def publish(found: Troubled, body: bytes = BODY) -> None:
    async with found.node.stub() as stub:
        await stub.Publish(wire.PublishRequest(key=b"@q", chunk=Chunk(bodies=[body])))


async def publish_until_refused(found: Troubled) -> ResourceExhausted:
    """Fills the journal's last segment."""
    for _ in range(200):
        try:
            await publish(found)
        except grpc.aio.AioRpcError as error:
            refusal = from_rpc_error(error)
            assert isinstance(refusal, ResourceExhausted)
            return refusal
    raise AssertionError("nothing is refused")


async def until_trouble(found: Troubled, part: str) -> str:
    async with asyncio.timeout(WAIT_S):
        while True:
            trouble = await found.trouble()
            if (part in trouble) if part else not trouble:
                return trouble
            await asyncio.sleep(0.05)


async def consumer_that_comes_is_served(found: Troubled) -> None:
    """Large publishes are refused all the while, and do not keep the room that others need to come in."""
    async with grpc.aio.insecure_channel(found.node.address) as channel:
        session = await RawSession.open(SliceServiceStub(channel))
        for _ in range(40):
            with pytest.raises(grpc.aio.AioRpcError, match="the disk of slice s01 is full"):
                await publish(found)
        async with asyncio.timeout(WAIT_S):
            await session.attach([b"q"], window_messages=1)
            await session.read_until(lambda: session.offsets(1) == [1])
            await session.ack(wire.Ack(key=b"@q", to=2, handles=[1]))
            await session.read_until(lambda: session.offsets(1) == [1, 2])
        with pytest.raises(ResourceExhausted, match="the disk of slice s01 is full"):
            large = wire.Publishes(keys=[b"@q"], chunks=[encode_chunk([BODY])])
            await session.change(wire.Step(publishes=large))
        session.call.cancel()


async def test_a_node_on_a_full_disk_serves_says_what_fails_and_heals(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", 300) as disk:
        async with troubled(tmp_path, "--delta-rows", "40") as found:
            await found.declare(b"q")
            filler = fill(disk, 2 * MIB)
            for _ in range(42):
                await publish(found)
            trouble = await until_trouble(found, "checkpoints fail")
            assert "changes are still taken: no disk space for the checkpoint" in trouble
            assert await found.metric("checkpoint_failing") == 1 and await found.metric("refuses_changes") == 0
            await found.until_ready(True)
            assert free_bytes(disk) > MIB // 2, "attempts do not take the space that others may need"

            refusal = await publish_until_refused(found)
            assert refusal.message == "the disk of slice s01 is full: the change was not stored"
            assert FULL in await until_trouble(found, FULL)
            for _ in range(50):
                with pytest.raises(grpc.aio.AioRpcError, match="the disk of slice s01 is full"):
                    await publish(found, b"small enough for the rest of the segment")
            assert f"{FULL}, but for acks" in await found.trouble()
            await consumer_that_comes_is_served(found)
            assert not found.lines("again: changes are taken")

            filler.unlink()
            await until_trouble(found, "")
            assert len(found.lines("checkpoints are written again")) == 1
            assert len(found.lines("the journal has disk space again")) == 1
            await publish(found)
            await found.until_ready(True)
        assert not found.lines("Traceback") and not found.lines("failed (exception)")
        report = check_path(disk)
        assert report.sound and report.rows["log"] > 0


async def test_a_node_stops_and_starts_on_a_full_disk(tmp_path: Path) -> None:
    """What no checkpoint has is in the journal: nothing is lost, and nothing is called damage."""
    with small_disk(tmp_path / "data", 200) as disk:
        (tmp_path / "first").mkdir()
        (tmp_path / "first" / "data").symlink_to(disk)
        async with troubled(tmp_path / "first", "--delta-rows", "10", "--stop-s", "2") as found:
            await found.declare(b"q")
            filler = fill(disk, 2 * MIB)
            for _ in range(12):
                await publish(found)
            await until_trouble(found, "checkpoints fail")
        assert found.lines("Nothing is lost")
        (tmp_path / "second").mkdir()
        (tmp_path / "second" / "data").symlink_to(disk)
        async with troubled(tmp_path / "second", "--delta-rows", "10") as found:
            await until_trouble(found, "checkpoints fail")
            filler.unlink()
            await until_trouble(found, "")
            assert await found.metric("log_messages") == 12
        assert check_path(disk).sound


async def test_a_node_that_starts_on_a_full_disk_has_started_and_is_not_ready(tmp_path: Path) -> None:
    """What ends processes that do not start, as Kubernetes does, must not end one that a purge would make well."""
    with small_disk(tmp_path / "data", 200) as disk:
        for life in ("first", "second"):
            (tmp_path / life).mkdir()
            (tmp_path / life / "data").symlink_to(disk)
        async with troubled(tmp_path / "first", "--stop-s", "2") as found:
            await found.declare(b"q")
            filler = fill(disk, 2 * MIB)
            await publish_until_refused(found)
        async with troubled(tmp_path / "second") as found:
            assert FULL in await found.until_ready(False)
            assert (await found.http.get("/startedz")).status_code == 200
            filler.unlink()
            await found.until_ready(True)


async def test_a_node_whose_store_has_no_room_starts_however_often_it_ended(tmp_path: Path) -> None:
    """Each life took changes that no checkpoint had, until a start had to write them, and could not."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with small_disk(data / "store", 30) as disk:
        disk.chmod(0o700)
        node = await NodeProcess.start(data, "--delta-rows", "10")
        async with node.stub() as stub:
            await stub.Declare(wire.DeclareRequest(queue=b"q"))
        filler = fill(disk)
        taken = 0
        for _ in range(4):
            async with node.stub() as stub:
                with pytest.raises(grpc.aio.AioRpcError, match="checkpoints fail, and"):
                    for _ in range(200):
                        await stub.Publish(wire.PublishRequest(key=b"@q", chunk=Chunk(bodies=[bytes(30_000)])))
                        taken += 1
            await node.kill()
            node = await NodeProcess.start(data, "--delta-rows", "10")
        filler.unlink()
        async with node.stub() as stub, asyncio.timeout(WAIT_S):
            described = await stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[b"q"])))
            assert described.description.queues[0].messages == taken > 40
        assert await node.stop() == 0
        assert check_path(data).sound


async def test_a_node_whose_store_has_no_room_answers_however_many_drops_come(tmp_path: Path) -> None:
    """They are taken, as they free room, but have rows of their own: in the end all calls waited for a checkpoint."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with small_disk(data / "store", 30) as disk:
        disk.chmod(0o700)
        node = await NodeProcess.start(data, "--delta-rows", "10")
        async with node.stub() as stub:
            for number in range(200):
                await stub.Declare(wire.DeclareRequest(queue=b"q%d" % number))
        filler = fill(disk)
        dropped = 0
        for _ in range(3):
            async with node.stub() as stub, asyncio.timeout(WAIT_S):
                with pytest.raises(grpc.aio.AioRpcError, match="checkpoints fail, and"):
                    for _ in range(200):
                        await stub.Publish(wire.PublishRequest(key=b"@q199", chunk=Chunk(bodies=[bytes(30_000)])))
                with pytest.raises(grpc.aio.AioRpcError, match="checkpoints fail, and"):
                    for _ in range(150):
                        await stub.Drop(wire.DropRequest(queue=b"q%d" % dropped))
                        dropped += 1
                described = await stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[b"q199"])))
                assert described.description.queues[0].exists
            await node.kill()
            node = await NodeProcess.start(data, "--delta-rows", "10")
        assert dropped >= 5
        filler.unlink()
        async with node.stub() as stub, asyncio.timeout(WAIT_S):
            while dropped < 199:
                try:
                    await stub.Drop(wire.DropRequest(queue=b"q%d" % dropped))
                    dropped += 1
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.02)
        assert await node.stop() == 0
        assert check_path(data).sound


async def test_a_disk_with_no_room_at_all_is_no_damage(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", 200) as disk:
        async with troubled(tmp_path, "--delta-rows", "10") as found:
            await found.declare(b"q")
            filler = fill(disk)
            while "checkpoints fail" not in await found.trouble():  # The store has a reserve.
                await publish(found, BODY[:10_000])
            filler.unlink()
            await until_trouble(found, "")
        assert check_path(disk).sound


async def test_a_node_on_a_full_disk_goes_on_when_a_segment_is_due_for_the_archive(tmp_path: Path) -> None:
    archive = ("--archive", str(tmp_path / "archive"), "--archive-every", "0.2")
    with small_disk(tmp_path / "data", 200) as disk:
        async with troubled(tmp_path, *archive) as found:
            await found.declare(b"q")
            filler = fill(disk, 2 * MIB)
            await publish(found, b"a segment is due")
            async with asyncio.timeout(WAIT_S):
                while not found.lines("could not be closed"):
                    assert found.node.process.returncode is None, found.lines("disk space")
                    await asyncio.sleep(0.05)
            await publish(found, b"it goes on")
            filler.unlink()
        assert not found.lines("Traceback")


async def until_taken(found: Troubled) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await publish(found)
            except grpc.aio.AioRpcError as error:
                assert isinstance(from_rpc_error(error), ResourceExhausted)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", ["purge", "drop"])
@pytest.mark.parametrize("last_body_bytes", [1_000_000, 2_000], ids=["large", "small"])
async def test_a_full_slice_is_freed_by_a_purge_or_a_drop_alone(tmp_path: Path, how: str, last_body_bytes: int) -> None:
    """What no checkpoint has need not be written when it was dropped since, and the journal has room for the drop, to
    the last byte that others may use (operator brief, M1; client brief, 1)."""
    with small_disk(tmp_path / "data", 300) as disk:
        async with troubled(tmp_path, "--delta-rows", "40") as found:
            await found.declare(b"q")
            await found.declare(b"q2")
            fill(disk, SEGMENT_BYTES + MIB // 2)
            await publish_until_refused(found)
            for _ in range(3_000):
                try:
                    await publish(found, bytes(last_body_bytes))
                except grpc.aio.AioRpcError:
                    break
            await until_trouble(found, FULL)
            async with found.node.stub() as stub:
                if how == "purge":
                    await stub.Purge(wire.PurgeRequest(queue=b"q"))
                else:
                    await stub.Drop(wire.DropRequest(queue=b"q"))
            await until_trouble(found, "")
            if how == "drop":
                await found.declare(b"q")
            await until_taken(found)
            async with asyncio.timeout(WAIT_S):
                while await found.metric("log_messages") != 1:
                    pass  # What was said last is said again for a moment.
        assert not found.lines("Traceback")
