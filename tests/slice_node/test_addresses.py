"""Where a slice node listens and where it says it is: they may differ, and neither may be nowhere."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster import create_cluster
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.records import SliceRecord, decode_record
from shoal_local.etcd import LocalEtcd
from shoal_slice_node.main import main

READY_S = 60
NODE = ("--slice", "s0", "--node", "n0", "--cluster", "test")
ADVERTISED = "slice-0.slices.example:7410"


async def test_the_advertised_address_is_what_clients_are_told(tmp_path: Path) -> None:
    etcd = LocalEtcd(tmp_path / "etcd")
    await etcd.start()
    command = ("-m", "shoal_slice_node", *NODE, "--listen", "127.0.0.1:0", "--data", str(tmp_path / "s0"))
    async with EtcdClient(etcd.options()) as client:
        await create_cluster(client, "test", ["s0"])
        node = await asyncio.create_subprocess_exec(
            *(sys.executable, *command, "--etcd", etcd.endpoint, "--advertise", ADVERTISED),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert node.stdout is not None
            ready = json.loads(await asyncio.wait_for(node.stdout.readline(), READY_S))
            entry = await client.get(ClusterKeys("test").slice("s0"))
            assert entry is not None
            assert decode_record(entry, SliceRecord).leader_address == ready["address"] == ADVERTISED
        finally:
            node.terminate()
            await asyncio.wait_for(node.wait(), READY_S)
            await etcd.stop()


@pytest.mark.parametrize(
    ("addresses", "complaint"),
    [
        (("--listen", "0.0.0.0:7410"), "0.0.0.0:7410 is every interface: say with --advertise"),
        (("--listen", "[::]:7410"), "is every interface"),
        (("--listen", "127.0.0.1:0", "--advertise", "0.0.0.0:7410"), "is every interface"),
        (("--listen", "127.0.0.1:0", "--advertise", "slice-0"), "--advertise slice-0 is not host:port"),
        (("--listen", "127.0.0.1:0", "--advertise", "slice-0:0"), "--advertise slice-0:0 is not host:port"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_at_the_start(
    addresses: tuple[str, ...], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "never made"
    with pytest.raises(SystemExit) as ended:
        main([*NODE, "--data", str(data), "--etcd", "127.0.0.1:1", *addresses])
    assert ended.value.code == 2
    assert complaint in " ".join(capsys.readouterr().err.split())
    assert not data.exists()
