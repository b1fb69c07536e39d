"""A local cluster whose etcd has lost its records: refused by name, and made anew only if told to."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal_contract.errors import Conflict, ShoalError
from shoal_coordination.client import EtcdClient
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.options import EtcdOptions
from shoal_local.cluster import LocalCluster
from shoal_local.commands import CLUSTER
from shoal_local.etcd import LocalEtcd
from shoal_local.record import ETCD, ETCD_PEERS, read_record
from tests.local.said import Said


@pytest.fixture
async def led(tmp_path: Path) -> Path:
    """A stopped cluster of two slices; both were led."""
    async with LocalCluster(tmp_path, slices=2) as cluster, shoal.connect(cluster.redirector) as broker:
        await broker.declare("inbox")
    return tmp_path


async def test_slices_that_were_led_are_remembered_with_their_lives(led: Path) -> None:
    lives = read_record(led).lives
    assert {name: life.epoch for name, life in lives.items()} == {"s01": 1, "s02": 1}
    assert all(life.incarnation for life in lives.values())
    assert sum(life.lsn for life in lives.values()) > 0, "known since the clean stop"
    async with LocalCluster(led) as cluster:
        await cluster.restart("s01")
    assert read_record(led).lives["s01"].epoch == 3


async def test_a_lost_etcd_is_refused_with_the_name_and_data_of_each_slice(led: Path) -> None:
    shutil.rmtree(led / "etcd")
    shutil.rmtree(led / "s01")
    with pytest.raises(Conflict, match=r"s01 \(its data is MISSING\), s02 \(its data is there\).*--rebuild-etcd"):
        await LocalCluster(led, partly=True).start()
    assert not (led / "etcd").exists(), "it can be put back"
    assert not (led / "s01").exists()


async def test_an_etcd_that_lost_only_its_records_is_refused_too(led: Path) -> None:
    """They are lost while no node runs: a node that leads, and loses its record, claims its slice anew."""
    ports = read_record(led).ports
    etcd = LocalEtcd(led / ETCD, port=ports[ETCD], peer_port=ports[ETCD_PEERS])
    await etcd.start()
    try:
        async with EtcdClient(_options(led)) as client:
            await client.delete(ClusterKeys(CLUSTER).slice("s02"))
    finally:
        await etcd.stop()
    with pytest.raises(Conflict, match=r"that were led: s02 \(its data is there\)\. "):
        await LocalCluster(led).start()


async def test_records_made_anew_let_sound_slices_go_on_and_refuse_missing_and_old_data(led: Path) -> None:
    shutil.copytree(led / "s02", led / "copy")
    async with LocalCluster(led) as cluster, shoal.connect(cluster.redirector) as broker:
        for number in range(16):
            await broker.declare(f"later-{number}")
    epochs = {name: life.epoch for name, life in read_record(led).lives.items()}
    shutil.rmtree(led / "etcd")
    shutil.rmtree(led / "s01")
    shutil.rmtree(led / "s02")
    (led / "copy").rename(led / "s02")
    said = Said()
    with pytest.raises(ShoalError, match="before it was ready"):
        await LocalCluster(led, rebuild_etcd=True, on_line=said).start()
    assert said.has("data of slice s01 is missing") and said.has("of slice s02 is an old copy")
    async with LocalCluster(led, rebuild_etcd=True, accept_empty=["s01", "s02"]):
        lives = read_record(led).lives
        assert all(lives[name].epoch > epoch for name, epoch in epochs.items())


async def test_an_older_copy_of_etcd_is_refused_and_not_remembered(led: Path) -> None:
    """Put back together with an older copy of a slice's data, it let the slice serve without its last changes."""
    for name in (ETCD, "s01"):
        shutil.copytree(led / name, led / f"{name}-copy")
    async with LocalCluster(led) as cluster, shoal.connect(cluster.redirector) as broker:
        for number in range(16):
            await broker.declare(f"later-{number}")
    before = read_record(led).lives
    for name in (ETCD, "s01"):
        shutil.rmtree(led / name)
        (led / f"{name}-copy").rename(led / name)
    with pytest.raises(Conflict, match=r"older records than it had, of slices that were led: s01 .*--rebuild-etcd"):
        await LocalCluster(led).start()
    assert read_record(led).lives == before
    said = Said()
    with pytest.raises(ShoalError, match="before it was ready"):
        await LocalCluster(led, rebuild_etcd=True, on_line=said).start()
    assert said.has("of slice s01 is an old copy")


async def test_a_folder_of_before_lives_were_remembered_is_refused_by_its_data(led: Path) -> None:
    record = read_record(led)
    record.lives = {}
    record.save(led)
    shutil.rmtree(led / "etcd")
    with pytest.raises(Conflict, match=r"s01 \(its data is there\), s02 \(its data is there\)"):
        await LocalCluster(led).start()
    async with LocalCluster(led, rebuild_etcd=True) as cluster, shoal.connect(cluster.redirector) as broker:
        assert (await broker.describe("inbox")).exists


async def test_missing_data_is_accepted_only_for_the_slice_that_is_named_and_only_once(led: Path) -> None:
    shutil.rmtree(led / "s01")
    shutil.rmtree(led / "s02")
    async with LocalCluster(led, partly=True, accept_empty=["s02"]) as cluster:
        assert list(cluster.missing) == ["s01"]
        assert "--accept-empty" in str(cluster.missing["s01"])
    shutil.rmtree(led / "s02")
    with pytest.raises(ShoalError, match="is missing"):
        await LocalCluster(led, partly=True).start()


async def test_a_slice_that_there_is_not_cannot_be_accepted(led: Path) -> None:
    with pytest.raises(Conflict, match="there is no slice s09; the cluster has s01, s02"):
        await LocalCluster(led, accept_empty=["s09"]).start()


def _options(folder: Path) -> EtcdOptions:
    return EtcdOptions((read_record(folder).address(ETCD),))


@pytest.mark.parametrize("flags", [{"rebuild_etcd": True}, {"accept_empty": ["s01"]}])
async def test_a_recovery_of_a_folder_without_a_cluster_starts_none(tmp_path: Path, flags: dict[str, Any]) -> None:
    """A mistyped --data began a new, empty cluster at the port that clients use."""
    folder = tmp_path / "mistyped"
    with pytest.raises(Conflict, match=r"there is no cluster in .*mistyped, so --.* has nothing to recover"):
        await LocalCluster(folder, **flags).start()
    assert not folder.exists()
