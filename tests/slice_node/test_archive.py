"""The archive: a record is in it or still in the journal, whatever fails; a node that stops leaves all of it there."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import httpx
import pytest

from shoal_contract.errors import ResourceExhausted, ShoalError, Unavailable
from shoal_contract.journal_record import encode_record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.archiving import Archiving
from shoal_slice_node.storage.archive import Archive
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_files import Journal
from shoal_slice_node.storage.journal_reader import list_segments
from shoal_slice_node.storage.journal_segment import SegmentScan, batch_mark, encode_head, used_bytes

from .archive_steps import archived_records
from .faulty_files import FaultyFiles, PowerLoss
from .journal_steps import KIND, SEGMENT_BYTES, append, open_journal, payload_of
from .node_process import NodeProcess

ARCHIVE = Path("/archive")


def archive_closed(journal: Journal, archive: Archive, below_lsn: int) -> None:
    for segment, end_lsn in journal.closed(below_lsn):
        archive.put(segment.path)
        journal.release(end_lsn)


def work(files: FaultyFiles, progress: dict[str, int], random: Random) -> None:
    """Appends, releases through the archive, and a clean stop with everything in a checkpoint."""
    archive = Archive(ARCHIVE, files)
    journal = open_journal(files, progress["released"] - 1)
    progress["acknowledged"] = journal.next_lsn - 1
    for _ in range(30):
        append(journal, random.randint(1, 6))
        progress["acknowledged"] = journal.next_lsn - 1
        if random.random() < 0.2:
            progress["released"] = max(progress["released"], journal.next_lsn - 10)
            archive_closed(journal, archive, progress["released"])
    progress["released"] = journal.next_lsn
    archive_closed(journal, archive, journal.next_lsn)
    sealed = journal.seal()
    if sealed is not None:
        archive.put(*sealed)
        journal.release(journal.next_lsn)
    journal.close()


@pytest.mark.parametrize("links", [True, False])
def test_no_record_is_missing_from_archive_and_journal_after_a_power_loss_at_every_step(links: bool) -> None:
    whole = FaultyFiles()
    whole.links = links
    work(whole, {"acknowledged": 0, "released": 1}, Random(1))
    for step in range(1, whole.steps_done, 2):
        files, progress, random = FaultyFiles(), {"acknowledged": 0, "released": 1}, Random(step)
        files.links, files.steps_left = links, step
        with pytest.raises(PowerLoss):
            work(files, progress, Random(1))
        files = files if random.random() < 0.3 else files.after_power_loss(random)
        files.links, files.steps_left = links, 1 << 60
        archived = archived_records(files, ARCHIVE)
        assert [record.lsn for record in archived] == list(range(1, len(archived) + 1))
        assert open_journal(files, progress["released"] - 1).first_lsn <= len(archived) + 1, "a gap between them"
        work(files, progress, random)
        archived = archived_records(files, ARCHIVE)
        assert [record.lsn for record in archived] == list(range(1, progress["acknowledged"] + 1))
        assert all(record.payload == payload_of(record.lsn) for record in archived)


def test_a_full_archive_is_said_and_takes_the_segment_later() -> None:
    files = FaultyFiles()
    files.links = False
    journal = open_journal(files)
    while len(files.paths()) < 4:
        append(journal, 4)
    archive = Archive(ARCHIVE, files)
    (segment, end_lsn), *_ = journal.closed(journal.next_lsn)
    files.write_error = errno.ENOSPC
    with pytest.raises(ResourceExhausted, match="no space in the archive"):
        archive.put(segment.path)
    files.write_error = None
    assert not archived_records(files, ARCHIVE)
    archive.put(segment.path)
    archive.put(segment.path)
    assert len(archived_records(files, ARCHIVE)) == end_lsn - 1


async def test_segments_wait_in_the_journal_while_the_archive_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_slice_node.adapters.archiving.ARCHIVE_RETRY_MS", 20)
    folder, place = tmp_path / "journal", tmp_path / "archive"
    place.write_text("no folder")
    journal = open_journal(DiskFiles(), folder=folder)
    for _ in range(100):
        append(journal, 4)
    journal_thread = ThreadPoolExecutor(1)

    def in_journal_thread(work: Callable[[], object]) -> asyncio.Future[object]:
        return asyncio.get_running_loop().run_in_executor(journal_thread, work)

    archiving = Archiving(Archive(place / "s01"), journal, in_journal_thread)
    running = asyncio.create_task(archiving.run())
    try:
        async with asyncio.timeout(30):
            archiving.release(300)
            while archiving.figures.failures < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            waiting = archiving.figures.waiting
            assert waiting > 3 and "archive" in archiving.figures.problem
            told = f"the archive takes no segments, and {waiting} wait on the slice's disk to be put or found there: "
            assert archiving.trouble == told + archiving.figures.problem
            assert journal.first_lsn == 1, "nothing is released"
            append(journal, 4)
            place.unlink()
            while archiving.figures.waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
    assert (archiving.figures.archived, archiving.figures.problem, archiving.trouble) == (waiting, "", "")
    assert 1 < journal.first_lsn <= 300
    await archiving.finish(journal.next_lsn - 1)
    assert [record.lsn for record in archived_records(DiskFiles(), place / "s01")] == list(range(1, 405))
    assert journal.first_lsn == journal.next_lsn == 405


async def test_a_segment_is_sealed_once_the_journals_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And what the archive has is released once a file can be opened for that."""
    monkeypatch.setattr("shoal_slice_node.adapters.archiving.ARCHIVE_RETRY_MS", 10)
    files = FaultyFiles()
    journal = open_journal(files)
    append(journal, 4)
    files.free_bytes = 0
    journal_thread = ThreadPoolExecutor(1)

    def in_journal_thread(work: Callable[[], object]) -> asyncio.Future[object]:
        return asyncio.get_running_loop().run_in_executor(journal_thread, work)

    archiving = Archiving(Archive(ARCHIVE, files), journal, in_journal_thread, every_s=0.01)
    attempts: list[int] = []
    seal = archiving._seal

    def counted_seal() -> None:
        attempts.append(len(attempts))
        seal()

    monkeypatch.setattr(archiving, "_seal", counted_seal)
    running = asyncio.create_task(archiving.run())

    def out_of_files(below_lsn: int) -> int:
        raise ResourceExhausted("no file can be opened", subject="open files")

    async def until(reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not reached():
                assert not running.done(), running.exception()
                await asyncio.sleep(0.01)

    try:
        await until(lambda: len(attempts) >= 4)
        assert len(caplog.records) == 1 and "could not be closed" in caplog.text
        files.free_bytes = 1 << 60
        await until(lambda: archiving.figures.archived == 1)
        caplog.clear()
        append(journal, 4)
        with monkeypatch.context() as patched:
            patched.setattr(journal, "release", out_of_files)
            archiving.release(journal.next_lsn)
            await until(lambda: "no file can be opened" in caplog.text)
        await until(lambda: journal.first_lsn == 5)
    finally:
        running.cancel()
    assert len(caplog.records) < 5, "it is not said again and again"


@pytest.mark.parametrize("seed", range(10))
def test_a_segment_that_is_found_in_the_archive_is_there_for_good(seed: int) -> None:
    """Its name may not be on disk: the process was killed before that. The journal releases it now."""
    files = FaultyFiles()
    journal, archive = open_journal(files), Archive(ARCHIVE, files)
    while not list(journal.closed(journal.next_lsn)):
        append(journal, 4)
    segment, _ = next(iter(journal.closed(journal.next_lsn)))
    files.steps_left = 2
    with pytest.raises(PowerLoss):  # Here the process is killed: it has linked and renamed.
        archive.put(segment.path)
    files.steps_left = 1 << 60
    assert ARCHIVE / segment.path.name in files.paths()
    assert not archive.put(segment.path)
    assert ARCHIVE / segment.path.name in files.after_power_loss(Random(seed)).paths()


@pytest.mark.parametrize("links", [True, False])
def test_a_segment_that_was_sealed_by_age_takes_no_more_room_than_its_records(links: bool) -> None:
    """It was archived once more when it was released: whole, with the zeros that fill its file."""
    files = FaultyFiles()
    files.links = links
    journal = open_journal(files)
    archive = Archive(ARCHIVE, files)
    sizes: list[int] = []
    for _ in range(5):
        append(journal, 3)
        sealed = journal.seal()
        assert sealed is not None
        archive.put(*sealed)
        sizes.append(sealed[1])
        append(journal, 3)
        sealed = journal.seal()  # And one that was not archived before it was closed.
        assert sealed is not None
        sizes.append(sealed[1])
    append(journal, 1)
    archive_closed(journal, archive, journal.next_lsn)
    assert [len(files.read(segment.path)) for segment in list_segments(files, ARCHIVE)] == sizes
    assert max(sizes) < SEGMENT_BYTES // 2
    assert [record.lsn for record in archived_records(files, ARCHIVE)] == list(range(1, 31))


def test_a_segment_that_is_mostly_used_is_linked(tmp_path: Path) -> None:
    journal = open_journal(DiskFiles(), folder=tmp_path / "journal")
    while len(list_segments(DiskFiles(), tmp_path / "journal")) < 2:
        append(journal, 4)
    (segment, _), *_ = journal.closed(journal.next_lsn)
    Archive(tmp_path / "archive").put(segment.path)
    assert (tmp_path / "archive" / segment.path.name).samefile(segment.path)
    journal.close()


@pytest.mark.parametrize("seed", range(10))
def test_all_that_a_segment_has_is_found_from_its_end(seed: int) -> None:
    """Records of zeros too, damaged ones, and none."""
    random = Random(seed)
    nonce, identity = random.randbytes(7) + b"\0", b"of-s01"
    data = encode_head(nonce, identity)
    lsn = 1
    for _ in range(random.choice((0, 1, 3, 40))):
        data += batch_mark(lsn, lsn - 1, nonce)
        for _ in range(random.randint(0, 5)):
            data += encode_record(KIND, lsn, 1, 1_000, bytes(random.choice((0, 10, 1 << 10, 100 << 10))))
            lsn += 1
    file = data + bytes(random.choice((0, 1, 100, 3 << 20)))
    assert used_bytes(file) == len(data)
    scan = SegmentScan(file, 1)
    scan.run()
    assert scan.position == len(data)
    if lsn > 2:
        at = random.randrange(len(encode_head(nonce, identity)), len(data))
        damaged = file[:at] + b"\x7f" + file[at + 1 :]
        assert len(damaged.rstrip(b"\0")) <= used_bytes(damaged) <= len(data)


def test_an_archive_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "segment").write_bytes(b"x")
    with pytest.raises(Unavailable) as caught:
        Archive(tmp_path / "file" / "s01").put(tmp_path / "segment")
    assert isinstance(caught.value, ShoalError) and "file" in caught.value.message


async def test_a_stopped_node_has_everything_in_its_archive_and_goes_on_from_there(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "archive"
    lsns: list[int] = []
    for life in range(3):
        node = await NodeProcess.start(data, "--archive", str(folder), "--http", "127.0.0.1:0")
        async with node.stub() as stub, httpx.AsyncClient(base_url=f"http://{node.http}") as client:
            metrics = (await client.get("/metrics")).text
            assert 'archive_waiting_segments{node="n01",slice="s01"} 0.0' in metrics
            assert 'archive_failing{node="n01",slice="s01"} 0.0' in metrics
            await stub.Declare(wire.DeclareRequest(queue=b"queue %d" % life))
            await stub.Bind(wire.BindRequest(queue=b"queue %d" % life, keys=[b"room"]))
        assert await node.stop() == 0
        records = archived_records(DiskFiles(), folder / "s01" / "n01")
        assert [record.lsn for record in records] == list(range(1, len(records) + 1))
        lsns.append(len(records))
        kept = list_segments(DiskFiles(), data / "journal")
        assert [segment.first_lsn for segment in kept] == [len(records) + 1]
    assert lsns[0] >= 3 and lsns[2] > lsns[1] > lsns[0]
