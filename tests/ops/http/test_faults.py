"""Nodes killed under the gateway, on a cluster of its own: streams go on, pulls wait, nothing is lost, it is told."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal_local.cluster import LocalCluster
from tests.ops.http.calls import ok
from tests.ops.http.conftest import WAIT_S


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path / "data", slices=2) as cluster:
        yield cluster


@pytest.fixture
async def http(cluster: LocalCluster) -> AsyncIterator[httpx.AsyncClient]:
    command = ["-m", "shoal_ops", "admin", "--json", "--listen", "127.0.0.1:0", "--at", cluster.redirector]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    ready = json.loads(await process.stdout.readline())
    async with httpx.AsyncClient(base_url=f"http://{ready['http']}", trust_env=False, timeout=WAIT_S) as http:
        yield http
    process.terminate()
    assert await process.wait() == 0


async def healthy(http: httpx.AsyncClient, wanted: bool) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if ok(await http.get("/v1/cluster"))["healthy"] is wanted:
                return
            await asyncio.sleep(0.05)


async def test_streams_and_long_polls_outlive_their_slices(cluster: LocalCluster, http: httpx.AsyncClient) -> None:
    ok(await http.post("/v1/queues", json={"queues": ["pushed", "pulled"]}))
    for queue in ("pushed", "pulled"):
        ok(await http.put(f"/v1/queues/{queue}/bindings/room"))
    async with http.stream("GET", "/v1/queues/pushed/events") as stream:
        data = (json.loads(line[6:]) async for line in stream.aiter_lines() if line.startswith("data: "))
        ok(await http.post("/v1/keys/room/messages", json={"body": "before"}))
        assert (await anext(data))["body"] == "before"
        found: dict[str, Any] = ok(await http.post("/v1/queues/pulled/pull"))
        ok(await http.post("/v1/queues/pulled/acks", json={"ids": [found["messages"][0]["id"]]}))

        for name in cluster.slices:
            await cluster.kill(name)
        await healthy(http, False)
        waiting = asyncio.ensure_future(http.post("/v1/queues/pulled/pull", json={"wait_s": 55}))
        for name in cluster.slices:
            await cluster.restart(name)
        await healthy(http, True)
        receipt = ok(await http.post("/v1/keys/room/messages", json={"body": "after"}))
        assert receipt["offset"] == 2
        seen: set[str] = set()
        async with asyncio.timeout(WAIT_S):
            while "after" not in seen:
                seen.add((await anext(data))["body"])
        pulled = ok(await waiting)
    assert [one["body"] for one in pulled["messages"]] == ["after"]


async def test_one_slice_away_does_not_hold_up_the_other(cluster: LocalCluster, http: httpx.AsyncClient) -> None:
    ok(await http.put("/v1/queues/inbox"))
    keys = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    ok(await http.post("/v1/queues/inbox/bindings", json={"keys": keys}))
    messages = [{"key": key, "body": key} for key in keys]
    assert ok(await http.post("/v1/messages", json={"messages": messages}))["published"] == len(keys)
    away, here = cluster.slices
    await cluster.kill(away)
    await healthy(http, False)
    places = ok(await http.get("/v1/locate", params={"key": keys}))["keys"]
    there = [one["key"] for one in places if one["slice"] == here]
    assert 0 < len(there) < len(keys)
    pulled = ok(await http.post("/v1/queues/inbox/pull", json={"messages": 100}))["messages"]
    assert sorted(one["key"] for one in pulled) == sorted(there)
    refused = await http.post("/v1/queues/inbox/pull")
    assert (refused.status_code, refused.json()["title"]) == (503, "Unavailable"), "there may be more"
    state = {one["slice"]: one["state"] for one in ok(await http.get("/v1/cluster"))["slices"]}
    assert state == {away: "silent", here: "serving"}
    await cluster.restart(away)
