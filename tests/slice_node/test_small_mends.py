"""Small bounds: leases of pulls, an archive of another life, exports that nobody reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from shoal_contract.errors import DeadlineExceeded, Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import PULL_LEASE_MS_MAX
from shoal_contract.wire import bulk_pb2
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters import bulk_service, slice_service
from shoal_slice_node.core.limits import LEASES_ENDED_KEPT
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.storage.archive import Archive
from shoal_slice_node.storage.limits import ARCHIVE_COPY_BYTES

from .brokers import connected, running, served
from .bulk_client import chunk, import_all, imports, snapshots
from .core_driver import CoreDriver, bind, declare, publish
from .faulty_files import FaultyFiles
from .journal_steps import append, open_journal
from .raw_session import NARROW

WAIT_S = 60
HOUR_MS = 3_600_000


def test_leases_of_acked_pulls_do_not_pile_up() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    puller = core.session()
    key_id, queue_id = core.tables.key.get(core.state.full_name(b"k")), core.tables.queue_by_name.get(b"q")
    assert key_id is not None and queue_id is not None
    for _ in range(3 * LEASES_ENDED_KEPT):
        core.change(publish("k", b"x"))
        (delivery,) = core.pull(puller, "q", 1, lease_ms=HOUR_MS)
        core.dispatcher.ack(puller.pullers[queue_id], key_id[ID], delivery.low, delivery.to)
        core.flush()
    assert len(core.dispatcher.registry.leases) <= LEASES_ENDED_KEPT + 1


async def test_a_lease_is_an_hour_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PULL_LEASE_MS_MAX == HOUR_MS
    monkeypatch.setattr(slice_service, "PULL_LEASE_MS_MAX", 50)  # The hour.
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
        await stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"x"])))
        request = wire.PullRequest(pull=wire.Pull(queue=b"q", lease_ms=(1 << 32) - 1))
        async with asyncio.timeout(WAIT_S):
            for _ in range(2):
                while not (await stub.Pull(request)).deliveries:  # noqa: ASYNC110 - the node is doing it
                    await asyncio.sleep(0.01)


def test_the_archive_of_another_life_is_not_taken_for_this_ones() -> None:
    archived = Path("/archive")
    first = FaultyFiles()
    for files in (first, FaultyFiles()):
        journal = open_journal(files)
        append(journal, 4)
        sealed = journal.seal()
        assert sealed is not None
        path, sound_bytes = sealed
        if files is first:
            Archive(archived, files).put(path, sound_bytes)
            found = files.read(archived / path.name)
        else:
            files.make_folder(archived)
            there = files.create(archived / path.name)
            there.write_at(0, found)
            with pytest.raises(Unavailable, match="another life"):
                Archive(archived, files).put(path, sound_bytes)
        journal.close()


def test_an_archive_that_a_lost_life_wrote_on_in_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    """Both lives write on in the segment of the backup: its head is the same, and so is the length once it is whole."""
    block = bytes(ARCHIVE_COPY_BYTES)
    for number, (there, ours, fits) in enumerate(
        (
            (b"head lost", b"head ours", False),
            (b"head lost", b"head ours and more", False),
            (b"head ours and more", b"head ours", False),
            (block + b"lost", block + b"ours" + block, False),
            (b"head", b"head ours", True),
            (b"head ours", b"head ours", True),
            (block + b"ours", block + b"ours" + block, True),
        )
    ):
        path, archived = tmp_path / f"journal-{number}" / "1.journal", tmp_path / f"archive-{number}"
        for file, data in ((archived / path.name, there), (path, ours)):
            file.parent.mkdir()
            file.write_bytes(data)
        if fits:
            Archive(archived).put(path)
        else:
            with pytest.raises(Unavailable, match="other records than the journal: those of another cluster"):
                Archive(archived).put(path, len(ours) if len(there) != len(ours) else None)
        assert (archived / path.name).read_bytes().rstrip(b"\0") == (ours if fits else there).rstrip(b"\0")


async def test_an_export_that_is_not_read_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds one of few places, and the pages of its snapshot."""
    monkeypatch.setattr(bulk_service, "SNAPSHOT_STALL_S", 0.5)
    async with running(tmp_path) as broker, served(broker, tmp_path) as address:
        parts = [
            chunk(part + 1, imports({b"%03d-%04d-" % (part, number) + b"x" * 240: [b"k"] for number in range(500)}))
            for part in range(40)
        ]
        async with grpc.aio.insecure_channel(address, NARROW) as narrow:
            await import_all(BulkServiceStub(narrow), parts)
            call = BulkServiceStub(narrow).Export(bulk_pb2.ExportRequest())
            await call.read()
            assert snapshots()
            async with asyncio.timeout(WAIT_S):
                while snapshots():  # noqa: ASYNC110 - the node ends them
                    await asyncio.sleep(0.02)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async with asyncio.timeout(WAIT_S):
                    while await call.read() is not grpc.aio.EOF:
                        pass
            assert isinstance(from_rpc_error(caught.value), DeadlineExceeded)
