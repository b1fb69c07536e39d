"""An operator's repair of a stopped node's journal: what it gives up, what it keeps, and that the node starts again."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_contract.errors import Corrupt, OutOfRange
from shoal_slice_node.adapters.recovery import recover
from shoal_slice_node.storage.journal_repair import JournalRepair, Loss
from shoal_slice_node.storage.journal_segment import read_head, segment_name
from shoal_slice_node.storage.offline import check_path
from shoal_slice_node.storage.stopped_folder import stopped

from .repair_steps import QUEUES, SEGMENT_BYTES, flip, node, queues, segments


def refused(path: Path) -> Corrupt:
    with pytest.raises(Corrupt) as caught:
        queues(path)
    return caught.value


def repaired(path: Path) -> Loss | None:
    with stopped(path) as store:
        repair = JournalRepair(path, store)
        loss = repair.find_damage()
        if loss is not None:
            before = {segment.name: segment.read_bytes() for segment in segments(path)}
            kept = repair.cut(loss)
            assert {copy.name: copy.read_bytes() for copy in kept.iterdir()} == before
        return loss


async def test_a_record_that_cannot_be_applied_stops_the_node_until_it_is_set_aside(tmp_path: Path) -> None:
    await node(tmp_path, checkpoint_lsn=5, bad_lsn=20)
    error = refused(tmp_path)
    assert error.value == 20 and "--skip 20" in error.message and "kind 99" in error.message
    assert any("journal record 20" in problem.text for problem in check_path(tmp_path).problems)
    with stopped(tmp_path) as store:
        repair = JournalRepair(tmp_path, store)
        place = repair.find(20)
        before = place.path.read_bytes()
        kept = repair.set_aside(place)
    assert (kept / place.path.name).read_bytes() == before
    report = check_path(tmp_path)
    assert report.sound and report.set_aside == (20,)
    assert queues(tmp_path) == set(range(2, QUEUES + 2)) - {20}


async def test_what_was_left_out_is_decided_once(tmp_path: Path) -> None:
    """Else a version that can apply it would do so later, below what was acknowledged meanwhile."""
    await node(tmp_path, checkpoint_lsn=5, bad_lsn=20)
    with stopped(tmp_path) as store:
        repair = JournalRepair(tmp_path, store)
        repair.set_aside(repair.find(20))
    recovered = await recover(tmp_path)
    try:
        assert recovered.store.checkpoint_lsn >= 20
    finally:
        await recovered.close()


@pytest.mark.parametrize("lsn", [5, QUEUES + 2])
async def test_only_a_record_above_the_checkpoint_that_is_there_can_be_set_aside(tmp_path: Path, lsn: int) -> None:
    await node(tmp_path, checkpoint_lsn=5)
    with stopped(tmp_path) as store, pytest.raises(OutOfRange):
        JournalRepair(tmp_path, store).find(lsn)


async def test_nothing_is_cut_where_nothing_is_damaged(tmp_path: Path) -> None:
    await node(tmp_path, checkpoint_lsn=5)
    assert repaired(tmp_path) is None


@pytest.mark.parametrize("segment", [0, 1, -1])
@pytest.mark.parametrize("place", ["head", "first", "middle"])
async def test_a_cut_gives_up_what_is_behind_the_damage_and_nothing_before_it(
    tmp_path: Path, segment: int, place: str
) -> None:
    """In the first, a middle and the last segment, at its head, its first record, and between two batches."""
    checkpoint_lsn = 5
    path = (await node(tmp_path, checkpoint_lsn))[segment]
    first_lsn, size = int(path.name.split(".")[0], 16), len(path.read_bytes().rstrip(b"\0"))
    head = read_head(path.read_bytes())
    assert head is not None
    flip(path, {"head": 3, "first": head.end + 3, "middle": size // 2}[place])
    if place == "first" and segment == 0:
        assert repaired(tmp_path) is None, "the checkpoint has it"
        assert queues(tmp_path) == set(range(2, QUEUES + 2))
        return
    error = refused(tmp_path)
    assert "shoal repair" in error.message
    loss = repaired(tmp_path)
    assert loss is not None and loss.path == path
    assert loss.last_lsn == QUEUES + 1 or segment == -1
    if place == "middle":
        assert loss.first_lsn > first_lsn
    else:
        assert loss.first_lsn == max(first_lsn, checkpoint_lsn + 1)
    assert repaired(tmp_path) is None
    assert check_path(tmp_path).sound
    assert queues(tmp_path) == set(range(2, loss.first_lsn))


async def test_a_journal_that_ends_before_the_checkpoint_begins_anew_behind_it(tmp_path: Path) -> None:
    paths = await node(tmp_path, checkpoint_lsn=QUEUES + 1)
    for path in paths[1:]:
        path.unlink()
    assert "but the checkpoint is at" in refused(tmp_path).message
    loss = repaired(tmp_path)
    assert loss is not None and (loss.first_lsn, loss.records) == (QUEUES + 2, {})
    assert queues(tmp_path) == set(range(2, QUEUES + 2))


async def test_a_journal_that_is_gone_begins_anew_behind_the_checkpoint(tmp_path: Path) -> None:
    for path in await node(tmp_path, checkpoint_lsn=30):
        path.unlink()
    assert "has no segments" in refused(tmp_path).message
    assert repaired(tmp_path) is not None
    assert queues(tmp_path) == set(range(2, 31))


async def test_damage_that_the_checkpoint_has_is_told_and_needs_no_repair(tmp_path: Path) -> None:
    paths = await node(tmp_path, checkpoint_lsn=QUEUES)
    flip(paths[0], 400)
    report = check_path(tmp_path)
    assert not report.sound and report.replayed == 1
    assert "damaged" in report.problems[0].text
    assert queues(tmp_path) == set(range(2, QUEUES + 2))


async def test_a_checksum_tells_copies_apart_and_does_not_depend_on_the_checkpoint(tmp_path: Path) -> None:
    await node(tmp_path / "a", checkpoint_lsn=5)
    await node(tmp_path / "b", checkpoint_lsn=QUEUES)
    await node(tmp_path / "c", checkpoint_lsn=5, bad_lsn=QUEUES + 1)
    reports = {name: check_path(tmp_path / name, checksum=True) for name in "abc"}
    sums = {name: report.checksum for name, report in reports.items()}
    assert sums["a"] == sums["b"] != sums["c"]
    assert reports["a"].checksums == reports["b"].checksums
    assert {one.table for one in {*reports["a"].checksums} ^ {*reports["c"].checksums}} <= {
        "key", "key_name", "queue", "queue_by_name", "partition", "binding", "meta"
    }  # fmt: skip


async def test_a_cut_beside_an_empty_segment_keeps_all_below_it_and_lists_all_that_it_gives_up(tmp_path: Path) -> None:
    """An empty segment among others, whose records the segment before it has: all of that one went, unlisted."""
    checkpoint_lsn = 5
    paths = await node(tmp_path, checkpoint_lsn)
    following = int(paths[-1].name.split(".")[0], 16)
    head = read_head(paths[-2].read_bytes())
    assert head is not None
    stray = paths[-2].with_name(segment_name(following - 2))
    stray.write_bytes(paths[-2].read_bytes()[: head.end].ljust(SEGMENT_BYTES, b"\0"))
    assert refused(tmp_path).value == following - 2
    loss = repaired(tmp_path)
    assert loss is not None
    assert (loss.first_lsn, loss.last_lsn) == (following - 2, QUEUES + 1)
    assert sum(loss.records.values()) == QUEUES + 1 - (following - 3), "each record that is given up is counted"
    assert queues(tmp_path) == set(range(2, following - 2))
    assert check_path(tmp_path).sound
