"""Health and metrics of a slice node, over plain HTTP."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk, Headers
from shoal_runtime import guard_metrics
from shoal_runtime.tasks import OnFailure
from shoal_slice_node.adapters.http import watched_over
from shoal_slice_node.adapters.metrics import (
    ARCHIVE_COUNTERS,
    ARCHIVE_GAUGES,
    COUNTERS,
    DEAD_LETTERS,
    GAUGES,
    MEMORY_LIMIT,
    MEMORY_USED,
    NOW_COUNTERS,
    NOW_GAUGES,
    PREFIX,
    REFUSALS,
    ROLE,
    ShownRole,
)

from .node_process import NodeProcess

_GAUGES = [name for name, _, _ in (*GAUGES, *NOW_GAUGES, *guard_metrics.GAUGES)]
_GAUGES += [MEMORY_USED[0], MEMORY_LIMIT[0], ROLE[0]]
_COUNTERS = [
    *(name for name, _, _ in (*COUNTERS, *NOW_COUNTERS, *guard_metrics.COUNTERS)),
    REFUSALS[0],
    DEAD_LETTERS[0],
]
OF_ARCHIVE = {PREFIX + name for name, _, _ in ARCHIVE_GAUGES} | {
    f"{PREFIX}{name}_total" for name, _, _ in ARCHIVE_COUNTERS
}
NAMES = {PREFIX + name for name in _GAUGES} | {f"{PREFIX}{name}_total" for name in _COUNTERS}


def never(what: str, error: BaseException) -> None:
    raise AssertionError(what) from error


on_failure: OnFailure = never


async def test_a_node_says_that_it_is_ready_and_what_it_did(tmp_path: Path) -> None:
    node = await NodeProcess.start(tmp_path, "--http", "127.0.0.1:0")
    try:
        async with node.stub() as stub:
            await stub.Declare(wire.DeclareRequest(queue=b"q"))
            await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"a", b"b"]))
            headers = [Headers(fields={"kind": b"long"}), Headers()]
            await stub.Publish(wire.PublishRequest(key=b"a", chunk=Chunk(bodies=[b"x", b"yz"], headers=headers)))
        async with httpx.AsyncClient(base_url=f"http://{node.http}") as client:
            assert (await client.get("/healthz")).json() == {"healthy": True}
            ready = (await client.get("/readyz")).json()
            assert (ready["ready"], ready["slice"]) == (True, "s01")
            text = (await client.get("/metrics")).text
            assert (await client.get("/")).status_code == 404
    finally:
        assert await node.stop() == 0
    samples = {
        sample.name: (sample.value, sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    labels = {"slice": "s01", "node": "n01"}
    for name, value in (("queues", 1), ("keys", 2), ("bindings", 2), ("log_messages", 2), ("log_body_bytes", 3)):
        assert samples[PREFIX + name] == (value, labels)
    for name, value in (("declares", 1), ("binds", 2), ("publishes", 2), ("chunks", 1), ("deliveries", 0)):
        assert samples[f"{PREFIX}{name}_total"] == (value, labels)
    assert {name for name in samples if name.startswith(PREFIX)} == NAMES
    assert samples[f"{PREFIX}refusals_total"][0] == 0
    assert samples[f"{PREFIX}memory_limit_bytes"][1].keys() == {"slice", "node", "share"}
    assert samples["process_resident_memory_bytes"][0] > 1 << 20


async def test_a_node_that_does_not_serve_yet_is_healthy_and_not_ready() -> None:
    async with (
        watched_over("127.0.0.1:0", on_failure) as watched,
        httpx.AsyncClient(base_url=f"http://{watched.address}") as client,
    ):
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        assert PREFIX not in (await client.get("/metrics")).text
        for role, told in (("leading", "it leads, and waits for its partitions"), ("following", "it is following")):
            watched.show(ShownRole("s01", "n01", role), None)
            ready = await client.get("/readyz")
            assert ready.status_code == 503 and told in ready.text


def test_every_metric_is_explained_to_users_and_none_that_is_not_there() -> None:
    text = (Path(__file__).parents[2] / "docs" / "administration.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(shoal_slice_node_\w+)`", text, re.MULTILINE))
    assert explained == NAMES | OF_ARCHIVE


async def test_silent_connections_do_not_close_the_port() -> None:
    async with watched_over("127.0.0.1:0", on_failure) as watched:
        host, _, port = watched.address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(250)]
        async with httpx.AsyncClient(base_url=f"http://{watched.address}", timeout=30) as client:
            assert (await client.get("/healthz")).status_code == 200
        for _, writer in silent:
            writer.close()


async def test_on_loopback_no_other_host_is_answered() -> None:
    async with (
        watched_over("127.0.0.1:0", on_failure) as watched,
        httpx.AsyncClient(base_url=f"http://{watched.address}") as client,
    ):
        for path in ("/metrics", "/healthz"):
            refused = await client.get(path, headers={"host": "evil.example:80"})
            assert (refused.status_code, refused.json()["subject"]) == (403, "host")


async def test_it_listens_on_ipv6_too() -> None:
    for address, at in (("[::1]:0", "[::1]"), ("[::]:0", "[::1]")):
        async with watched_over(address, on_failure) as watched, httpx.AsyncClient(trust_env=False) as client:
            port = watched.address.rpartition(":")[2]
            assert (await client.get(f"http://{at}:{port}/healthz")).status_code == 200


async def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    async with watched_over("127.0.0.1:0", on_failure) as watched:
        with pytest.raises(OSError, match=f"cannot listen on {watched.address}"):
            async with watched_over(watched.address, on_failure):
                pass
