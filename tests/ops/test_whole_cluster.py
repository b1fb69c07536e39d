"""`shoal check` of a local cluster's folder says also what is missing, or lies in the wrong place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import shoal
from shoal_contract.data_identity import DataIdentity
from shoal_local.cluster import LocalCluster
from shoal_local.record import LocalRecord, read_record
from shoal_ops.commands import offline
from shoal_ops.commands.whole_cluster import misplaced
from shoal_ops.exits import DONE, FOUND
from shoal_slice_node.storage.offline import check_path


@pytest.fixture
async def led(tmp_path: Path) -> Path:
    """A stopped cluster of two slices; both were led."""
    folder = tmp_path / "led"
    async with LocalCluster(folder, slices=2) as cluster, shoal.connect(cluster.redirector) as broker:
        await broker.declare([f"queue-{number}" for number in range(16)])
    return folder


async def test_a_copy_that_is_not_the_whole_cluster_is_no_success(
    led: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def checked(folder: Path) -> tuple[int, str]:
        code = offline.check(folder, checksum=False, as_json=False)
        return code, capsys.readouterr().out

    def copied(name: str) -> Path:
        copy = led.parent / name
        shutil.copytree(led, copy)
        return copy

    code, out = checked(led)
    assert code == DONE and "every invariant holds" in out and "PROBLEM" not in out

    for what in ("missing", "empty"):  # Empty: a volume was not mounted when it was copied.
        missing = copied(what)
        for name in ("s01", "etcd"):
            shutil.rmtree(missing / name)
            if what == "empty":
                (missing / name).mkdir()
        code, out = checked(missing)
        assert code == FOUND and offline.INCOMPLETE in out and "every invariant holds" not in out
        assert f"PROBLEM {missing / 's01'} is missing: the data of slice s01, up to LSN" in out
        assert f"PROBLEM {missing / 'etcd'} is missing" in out

    mixed = copied("mixed")
    shutil.rmtree(mixed / "s01")
    shutil.copytree(mixed / "s02", mixed / "s01")
    shutil.copytree(mixed / "s02", mixed / "s07")
    code, out = checked(mixed)
    assert code == FOUND
    assert f"PROBLEM {mixed / 's01'} should have the data of slice s01, and has that of slice s02" in out
    assert f"PROBLEM {mixed / 's07'} is of no slice that local-cluster.json names" in out

    old = copied("old")
    async with LocalCluster(led) as cluster, shoal.connect(cluster.redirector) as broker:
        await broker.declare([f"later-{number}" for number in range(16)])
    shutil.copy(led / "local-cluster.json", old / "local-cluster.json")
    assert offline.check(old, checksum=False, as_json=True) == FOUND
    assert "s01 is an old copy: it ends at LSN " in capsys.readouterr().out


def test_a_folder_of_one_node_or_without_a_record_is_not_compared(tmp_path: Path) -> None:
    assert misplaced(tmp_path, {}) == []


def test_data_of_another_cluster_or_life_is_named(led: Path) -> None:
    record: LocalRecord = read_record(led)
    report = check_path(led / "s01")
    assert report.whose is not None and not misplaced(led, {"s01": report, "s02": check_path(led / "s02")})
    for wrong, told in (
        (
            DataIdentity("f" * 32, "s01", "n01", report.whose.incarnation),
            f"another cluster, ffffffff; this one is {record.id[:8]}",
        ),
        (DataIdentity(record.id, "s01", "n01", "f" * 32), "another life of slice s01"),
    ):
        object.__setattr__(report, "whose", wrong)
        (fault,) = misplaced(led, {"s01": report, "s02": check_path(led / "s02")})
        assert told in fault
