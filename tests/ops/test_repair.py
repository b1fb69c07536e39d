"""`shoal check` and `shoal repair` on folders that are damaged: what they say, what they do, and their exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER
from shoal_local.record import RECORD
from shoal_ops.commands.repair import _accepting
from shoal_ops.exits import BAD_CALL, DAMAGED, DONE, FOUND
from shoal_slice_node.core.apply.records import Kind
from shoal_slice_node.storage.journal_segment import read_head
from tests.ops.command_line import shoal
from tests.slice_node.core_driver import publish
from tests.slice_node.old_stores import store_of_format
from tests.slice_node.repair_steps import QUEUES, change, flip, node, queues

BAD_ARGUMENTS = 2


async def test_a_record_is_shown_before_it_is_set_aside(tmp_path: Path) -> None:
    await node(tmp_path, checkpoint_lsn=5, bad_lsn=20)
    code, out, _ = await shoal("check", str(tmp_path))
    assert code == FOUND and "journal record 20 (kind 99) cannot be applied" in out
    code, out, _ = await shoal("repair", str(tmp_path), "--skip", "20")
    assert code == FOUND and "record 20: kind 99 of epoch 3, 1970-01-01T00:00:01Z" in out and "--yes" in out
    code, out, _ = await shoal("repair", str(tmp_path), "--skip", "20", "--yes")
    assert code == DONE and "Record 20 is set aside" in out
    code, out, _ = await shoal("check", str(tmp_path))
    assert code == DONE and "set aside by an operator: records 20" in out and "every invariant holds" in out
    code, out, _ = await shoal("inspect", "journal", str(tmp_path), "--json")
    assert code == DONE
    assert sum(segment["set_aside"] for segment in json.loads(out)["segments"]) == 1


@pytest.mark.parametrize("payload", [change(publish("k", b"x")), b"cut in its head"])
async def test_it_says_what_becomes_of_a_record_and_what_is_behind_it(tmp_path: Path, payload: bytes) -> None:
    await node(tmp_path, checkpoint_lsn=5, bad_lsn=20, bad=(Kind.CHANGE, payload))
    skip = ("repair", str(tmp_path), "--skip", "20")
    code, out, _ = await shoal(*skip)
    assert code == FOUND and "what cannot be applied of it is left out" in out and "acks may hit other messages" in out
    assert (await shoal(*skip, "--yes"))[0] == DONE
    code, out, _ = await shoal(*skip)
    assert code == FOUND and "set aside already. This time all of it is left out" in out
    (tmp_path / "repair").rename(tmp_path / "earlier")  # Its folders are named by the second.
    assert (await shoal(*skip, "--yes"))[0] == DONE
    code, out, _ = await shoal(*skip, "--yes")
    assert code == DONE and "All of it is left out already." in out


async def test_a_cut_says_what_it_gives_up_and_keeps_a_copy(tmp_path: Path) -> None:
    path = (await node(tmp_path, checkpoint_lsn=5))[1]
    flip(path, 1000)
    code, out, _ = await shoal("repair", str(tmp_path), "--cut")
    assert code == FOUND and f"damaged: {path}, byte" in out and f"to {QUEUES + 1}; of them can still be read" in out
    code, out, _ = await shoal("repair", str(tmp_path), "--cut", "--yes")
    assert code == DONE and "--accept-empty" in out
    code, out, _ = await shoal("repair", str(tmp_path), "--cut")
    assert code == DONE and "Nothing is damaged" in out
    assert 5 < max(queues(tmp_path)) < QUEUES + 1
    assert len(list((tmp_path / "repair").iterdir())) == 1


def first_record(segment: Path) -> int:
    """A byte of the segment's first record."""
    head = read_head(segment.read_bytes())
    assert head is not None
    return head.end + 3


async def test_damage_that_the_checkpoint_covers_needs_no_repair(tmp_path: Path) -> None:
    segments = await node(tmp_path, checkpoint_lsn=5)
    flip(segments[0], first_record(segments[0]))
    code, out, _ = await shoal("check", str(tmp_path))
    assert code == FOUND and "the checkpoint has them, so nothing is lost" in out
    assert "nothing is to be repaired: the nodes start as they are" in out and "keep the files" not in out
    flip(segments[1], first_record(segments[1]))
    code, out, _ = await shoal("check", str(tmp_path))
    assert code == FOUND and "something is wrong: keep the files as they are" in out and "repaired" not in out


def test_the_next_step_names_the_command_of_a_local_cluster(tmp_path: Path) -> None:
    assert _accepting(tmp_path / "s01") == "--accept-empty"
    (tmp_path / RECORD).touch()
    assert _accepting(tmp_path / "s01") == f"`shoal up --data {tmp_path} --accept-empty s01`"


async def test_a_repair_that_is_not_named_or_not_possible_changes_nothing(tmp_path: Path) -> None:
    await node(tmp_path, checkpoint_lsn=5)
    before = {path: path.read_bytes() for path in (tmp_path / JOURNAL_FOLDER).iterdir()}
    for arguments in ((), ("--skip", "9", "--cut"), ("--skip", "nine")):
        code, _, error = await shoal("repair", str(tmp_path), *arguments)
        assert code == BAD_ARGUMENTS and error
    code, _, error = await shoal("repair", str(tmp_path), "--skip", "3", "--yes")
    assert code != DONE and "it was applied already" in error
    code, _, error = await shoal("repair", str(tmp_path / JOURNAL_FOLDER), "--cut", "--yes")
    assert code == BAD_CALL and "no slice node's data" in error
    assert {path: path.read_bytes() for path in (tmp_path / JOURNAL_FOLDER).iterdir()} == before


async def test_a_cut_names_what_was_in_the_records_that_it_gives_up(tmp_path: Path) -> None:
    path = (await node(tmp_path, checkpoint_lsn=5))[1]
    flip(path, 1000)
    _, out, _ = await shoal("repair", str(tmp_path), "--cut")
    last = f"record {QUEUES + 1}: CHANGE of epoch 3, 1970-01-01T00:00:01Z"
    (line,) = [line for line in out.splitlines() if line.startswith(last)]
    assert line.endswith(f"1 declare; names: q{QUEUES + 1:02}")


@pytest.mark.parametrize("command", [("check",), ("repair", "--cut"), ("repair", "--skip", "9"), ("inspect", "store")])
async def test_a_path_that_is_no_nodes_folder_is_no_damage(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for name, said in (
        ("away", f"there is no folder {tmp_path / 'away'}"),
        ("notes.txt", f"{tmp_path / 'notes.txt'} is not a folder"),
        (".", f"{tmp_path} has no "),
    ):
        code, _, error = await shoal(*command, str(tmp_path / name))
        assert code == BAD_CALL and said in error, error


async def test_a_repair_of_a_clusters_folder_names_its_nodes(tmp_path: Path) -> None:
    for name in ("s01", "s02"):
        await node(tmp_path / name, checkpoint_lsn=5)
    for how in (("--cut",), ("--skip", "9")):
        code, _, error = await shoal("repair", str(tmp_path), *how)
        assert code == BAD_CALL and f"name one of them: {tmp_path / 's01'}, {tmp_path / 's02'}" in error


async def test_a_node_without_its_store_is_damage(tmp_path: Path) -> None:
    await node(tmp_path, checkpoint_lsn=5)
    shutil.rmtree(tmp_path / STORE_FOLDER)
    code, out, _ = await shoal("check", str(tmp_path))
    assert code == FOUND and "it has no store/data.mdb" in out
    code, _, error = await shoal("repair", str(tmp_path), "--cut")
    assert code == DAMAGED and "it has no store/data.mdb" in error


@pytest.mark.parametrize("command", [("check",), ("repair", "--cut"), ("inspect", "store")])
async def test_a_store_of_another_version_is_called_that(command: tuple[str, ...], tmp_path: Path) -> None:
    store_of_format(tmp_path / STORE_FOLDER, b"4")
    code, _, error = await shoal(*command, str(tmp_path))
    assert code == BAD_CALL and error.rstrip().endswith("nothing is damaged: use that version")
    assert "has format 4; this version reads format 11" in error


async def test_a_check_goes_on_after_a_damaged_node_and_needs_no_lock_file(tmp_path: Path) -> None:
    """One exit code for whatever is wrong, and every node is looked at."""
    names = ("s01", "s02", "s03")
    for name in names:
        await node(tmp_path / name, checkpoint_lsn=5)
        (tmp_path / name / STORE_FOLDER / "owner").unlink()
    data = tmp_path / "s01" / STORE_FOLDER / "data.mdb"
    data.write_bytes(b"x" * data.stat().st_size)
    flip(sorted((tmp_path / "s02" / JOURNAL_FOLDER).iterdir())[1], 1000)
    code, out, _ = await shoal("check", str(tmp_path))
    assert code == FOUND
    assert f"{tmp_path / 's01'}: PROBLEM" in out and f"{tmp_path / 's02'}: PROBLEM" in out
    assert f"{tmp_path / 's03'}: " in out and f"{tmp_path / 's03'}: PROBLEM" not in out
    code, out, _ = await shoal("check", str(tmp_path), "--json")
    assert code == FOUND and [json.loads(line)["sound"] for line in out.splitlines()] == [False, False, True]


async def test_a_checksum_is_shown_when_it_is_asked_for(tmp_path: Path) -> None:
    await node(tmp_path, checkpoint_lsn=5)
    code, out, _ = await shoal("check", str(tmp_path), "--checksum", "--json")
    report = json.loads(out)
    assert code == DONE and len(report["checksum"]) == 32
    told = {(one["table"], one["partition"]): one for one in report["checksums"]}
    assert told["queue", None]["rows"] == report["rows"]["queue"] and len(told["meta", None]["checksum"]) == 32
    code, out, _ = await shoal("check", str(tmp_path), "--checksum")
    assert code == DONE and f"checksum {report['checksum']}" in out and told["queue", None]["checksum"] in out
