"""A node that takes no changes says so wherever an operator looks: refusals, log, readiness, figures (operator H2)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import grpc
import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk

from .node_process import How, NodeProcess
from .troubled_node import FULL, WAIT_S, troubled


async def test_a_full_disk_is_told_everywhere_and_heals_without_a_restart(tmp_path: Path) -> None:
    async with troubled(tmp_path) as found:
        await found.declare(b"before")
        (found.faults / "full").touch()
        for number in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await found.declare(b"q%d" % number)
            refusal = from_rpc_error(caught.value)
            assert isinstance(refusal, ResourceExhausted) and "the disk of slice s01 is full" in str(refusal)
        assert FULL in await found.until_ready(False)
        assert (await found.http.get("/startedz")).status_code == 200
        assert await found.trouble() == FULL
        assert await found.metric("refuses_changes") == 1
        assert await found.metric("refusals_total", error="resource_exhausted") == 3
        assert len(found.lines("the journal takes no changes: no disk space")) == 1, "told once, not for each refusal"
        (found.faults / "full").unlink()
        await found.declare(b"q0")
        await found.until_ready(True)
        async with asyncio.timeout(WAIT_S):
            while await found.trouble() or await found.metric("refuses_changes"):
                pass  # What was said last is said again for a moment.
        assert len(found.lines("the journal has disk space again")) == 1


async def test_what_a_disk_holds_and_has_left_are_figures(tmp_path: Path) -> None:
    async with troubled(tmp_path) as found:
        async with found.node.stub() as stub:
            await stub.Declare(wire.DeclareRequest(queue=b"q"))
            await stub.Publish(wire.PublishRequest(key=b"@q", chunk=Chunk(bodies=[b"x"])))
        data = tmp_path / "data"
        blocks = sum(512 * one.stat().st_blocks for one in data.rglob("*") if one.is_file())
        assert 0 <= blocks - await found.metric("disk_bytes") < 1 << 20, "what is allocated, not what is announced"
        assert await found.metric("disk_free_bytes") > 0


async def test_a_node_that_is_told_to_stop_serves_until_its_checkpoint_is_written(tmp_path: Path) -> None:
    """Its outage is the last, short checkpoint, not the first (kubernetes K14). Here the first does not come to its
    end, and is given half of the time that the stop may take."""
    async with troubled(tmp_path, "--stop-s", "8") as found:
        await found.declare(b"before")
        (found.faults / "checkpoints").touch()
        found.node.process.terminate()
        told = await found.until_ready(False)
        assert "it is closing" in told
        await found.declare(b"meanwhile")
        assert found.lines("It is tried again when")
        (found.faults / "checkpoints").unlink()
        async with asyncio.timeout(WAIT_S):
            assert await found.node.process.wait() == 0
        assert not found.lines("the node stops")


async def test_a_node_whose_data_folder_is_removed_ends_and_does_not_say_that_nothing_is_lost(tmp_path: Path) -> None:
    """It went on acknowledging what no disk had."""
    log = tmp_path / "log"
    node = await NodeProcess.start(tmp_path / "data", how=How(log=log))
    async with node.stub() as stub:
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
    shutil.rmtree(tmp_path / "data")
    async with asyncio.timeout(WAIT_S):
        assert await node.process.wait() == 1
    assert "its data folder was removed while it ran" in log.read_text()
    assert "Nothing is lost" not in log.read_text()


async def test_an_archive_that_takes_nothing_is_told_until_it_does(tmp_path: Path) -> None:
    """All was well until the slice's own disk was full."""
    archive = tmp_path / "archive"
    async with troubled(tmp_path, "--archive", str(archive), "--archive-every", "0.1") as found:
        await found.declare(b"q0")
        shutil.rmtree(archive, ignore_errors=True)
        archive.write_text("no folder")
        async with asyncio.timeout(WAIT_S):
            await found.declare(b"q1")
            while "the archive takes no segments" not in await found.trouble():
                pass  # It is closed and tried soon.
            archive.unlink()
            while await found.trouble():
                pass  # It is tried again.
