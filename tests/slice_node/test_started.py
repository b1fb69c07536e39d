"""A start is over once the data is open and recovered, whatever the node waits for or refuses then: `/startedz`.

A node that watched itself by `/readyz` was ended again and again, by Kubernetes, while its disk was full or etcd was
away (operator brief of round 11, F3). On a disk that is really full: test_full_disk.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from shoal_contract.data_folder import STORE_FOLDER
from shoal_local.ports import free_port
from shoal_runtime.tasks import OnFailure
from shoal_slice_node.adapters import recovery
from shoal_slice_node.adapters.http import watched_over
from shoal_slice_node.adapters.limits import STARTED_WAIT_S
from shoal_slice_node.adapters.roles import Role

from .cluster_nodes import clusters
from .faulty_node import STARTED
from .node_process import launch
from .role_turns import process

WAIT_S = 60


def never(what: str, error: BaseException) -> None:
    raise AssertionError(what) from error


on_failure: OnFailure = never


@dataclass
class Probed:
    """What probes are told. `now_s`: the node's clock."""

    http: httpx.AsyncClient
    now_s: float = 1_000.0

    async def told(self, path: str) -> tuple[int, str]:
        answer = await self.http.get(path)
        return answer.status_code, answer.text

    async def statuses(self) -> list[int]:
        """Of `/healthz`, `/startedz`, `/readyz`."""
        return [(await self.told(path))[0] for path in ("/healthz", "/startedz", "/readyz")]


async def test_a_process_has_started_once_its_data_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay, go_on = recovery._replay, asyncio.Event()

    async def held(*given: object) -> int:
        await go_on.wait()
        return await replay(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "_replay", held)
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as client:
        probed = Probed(client)
        async with watched_over("127.0.0.1:0", on_failure, lambda: probed.now_s) as watched:
            client.base_url = httpx.URL(f"http://{watched.address}")
            assert await probed.statuses() == [200, 503, 503], "nothing is known of it yet"
            async with process(tmp_path / "data", watched.show) as node:
                node.seat.knows.clear()
                node.seat.may_lead.clear()
                await node.until(Role.WAITING)
                probed.now_s += STARTED_WAIT_S - 1
                code, told = await probed.told("/startedz")
                assert (code, "it waits for etcd to say what the cluster is" in told) == (503, True)
                probed.now_s += 1
                assert await probed.statuses() == [200, 200, 503], "to start it again would not bring etcd"
                assert not (tmp_path / "data").exists(), "nothing is opened before it is known whose data it may be"

                node.seat.knows.set()
                await node.until(Role.OPENING)
                probed.now_s += 100 * STARTED_WAIT_S
                code, told = await probed.told("/startedz")
                assert (code, "it is opening" in told) == (503, True)
                assert await probed.statuses() == [200, 503, 503]

                go_on.set()
                await node.until(Role.FOLLOWING)
                assert await probed.statuses() == [200, 200, 503], "it tries to lead"
                node.seat.may_lead.set()
                await node.until(Role.LEADING)
                assert await probed.statuses() == [200, 200, 200]
                node.seat.may_lead.clear()
                node.seat.depose()
                await node.until(Role.FOLLOWING, 1)
                assert await probed.statuses() == [200, 200, 503], "another leads"


async def test_a_process_that_is_told_to_stop_while_it_waits_opens_nothing(tmp_path: Path) -> None:
    async with process(tmp_path / "data") as node:
        node.seat.knows.clear()
        await node.until(Role.WAITING)
        await node.stopped()
    assert not (tmp_path / "data").exists()


async def test_a_node_whose_etcd_is_away_has_started_and_leads_once_it_is_back(tmp_path: Path) -> None:
    async with clusters(tmp_path / "etcd") as maker:
        how = maker.how(await maker.create(), tmp_path / "faults")
        how = replace(how, environment={**how.environment, STARTED: "0"})
        await maker.etcd.stop()
        at = f"127.0.0.1:{free_port()}"
        node = await launch(tmp_path / "data", "--http", at, how=how)
        try:
            async with httpx.AsyncClient(base_url=f"http://{at}", trust_env=False) as client, asyncio.timeout(WAIT_S):
                await until(Probed(client), [200, 200, 503])
                assert "it waits for etcd" in (await client.get("/readyz")).text
                assert not (tmp_path / "data" / STORE_FOLDER).exists()
                await maker.etcd.start()
                await until(Probed(client), [200, 200, 200])
            node.terminate()
            assert await asyncio.wait_for(node.wait(), WAIT_S) == 0
        finally:
            if node.returncode is None:
                node.kill()
            await node.wait()


async def until(probed: Probed, statuses: list[int]) -> None:
    while True:
        try:
            if await probed.statuses() == statuses:
                return
        except httpx.TransportError:
            pass  # Its port does not answer yet.
