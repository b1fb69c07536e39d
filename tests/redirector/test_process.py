"""A real redirector process with a real etcd: answers, changes, outages, bad input, stopping."""

import asyncio
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from shoal_contract.errors import InvalidName, ShoalError, TooLarge, Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.partition_map import PartitionMap
from shoal_contract.wire import redirector_pb2 as wire
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceStub
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster import create_cluster
from shoal_coordination.leadership import claim_slice_leadership
from shoal_coordination.nodes import register_node
from shoal_coordination.records import NodeRecord
from shoal_coordination.slice_data import ClaimedData
from shoal_local.etcd import LocalEtcd
from tests.coordination.cluster_records import replace_map
from tests.redirector.conftest import CLUSTER, PARTITIONS, SLICES, WAIT_S, Redirector, end, launch, until_ready

if TYPE_CHECKING:
    from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceAsyncStub

EVEN = PartitionMap.even(SLICES, PARTITIONS)
KEYS = [b"lobby", b"\xff\x00", "Z\u00fcrich".encode(), b"@queue", b"a&b=c+d %"]


@asynccontextmanager
async def watching(
    redirector: Redirector,
) -> AsyncIterator[grpc.aio.UnaryStreamCall[wire.WatchMapRequest, wire.WatchMapResponse]]:
    call = redirector.stub.WatchMap(wire.WatchMapRequest())
    try:
        yield call
    finally:
        call.cancel()


async def next_of(call: grpc.aio.UnaryStreamCall[wire.WatchMapRequest, wire.WatchMapResponse]) -> wire.WatchMapResponse:
    async with asyncio.timeout(WAIT_S):
        response = await call.read()
    assert isinstance(response, wire.WatchMapResponse)
    return response


async def refused(redirector: Redirector, keys: list[bytes]) -> ShoalError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await redirector.stub.Locate(wire.LocateRequest(keys=keys))
    return from_rpc_error(caught.value)


async def test_metrics_count_what_was_asked(redirector: Redirector) -> None:
    async def metrics() -> dict[str, float]:
        text = (await redirector.http.get("/metrics")).text
        return {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}

    before = await metrics()
    await redirector.stub.Locate(wire.LocateRequest(keys=KEYS))
    await redirector.http.get("/v1/locate?key=lobby")
    async with watching(redirector) as call:
        await next_of(call)
        async with asyncio.timeout(WAIT_S):  # What was said last is said again for a moment.
            while not (watched := await metrics())["shoal_redirector_watchers"]:
                pass
    grown = {name: watched[name] - before[name] for name in before}
    assert grown["shoal_redirector_locates_total"] == 2
    assert grown["shoal_redirector_keys_located_total"] == len(KEYS) + 1
    assert (grown["shoal_redirector_watchers"], grown["shoal_redirector_map_responses_total"]) == (1, 1)
    assert watched["shoal_redirector_map_partitions"] == PARTITIONS
    assert (watched["shoal_redirector_map_version"], watched["shoal_redirector_map_age_seconds"]) == (1, 0)
    assert watched["shoal_redirector_slices"] == len(SLICES)
    text = (Path(__file__).parents[2] / "docs" / "administration.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(shoal_(?:redirector|build)_\w+)`", text, re.MULTILINE))
    assert explained == {name for name in before if name.startswith("shoal_")}


async def test_locate_answers_many_keys_in_order(redirector: Redirector) -> None:
    answer = await redirector.stub.Locate(wire.LocateRequest(keys=KEYS))
    assert (answer.map_version, answer.age_ms) == (1, 0)
    assert [answer.slices[owner].slice for owner in answer.owners] == [EVEN.owner_of(key) for key in KEYS]
    assert [EVEN.owners[partition] for partition in answer.partitions] == list(answer.owners)
    most = await redirector.stub.Locate(wire.LocateRequest(keys=[b"k" * 255] * 10_000))
    assert len(most.owners) == 10_000


async def test_http_locates_the_same_keys(redirector: Redirector) -> None:
    answer = await redirector.http.get(
        "/v1/locate?key=lobby&key=%FF%00&key=Z%C3%BCrich&key=%40queue&key=a%26b%3Dc%2Bd+%25"
    )
    body = answer.json()
    assert answer.status_code == 200
    assert (body["map_version"], body["age_ms"]) == (1, 0)
    assert [found["key"] for found in body["keys"]] == ["lobby", "\\xff\x00", "Z\u00fcrich", "@queue", "a&b=c+d %"]
    assert [found["slice"] for found in body["keys"]] == [EVEN.owner_of(key) for key in KEYS]
    assert {(found["address"], found["epoch"]) for found in body["keys"]} == {("", 0)}


async def test_on_loopback_it_answers_no_other_host(redirector: Redirector) -> None:
    """A page with a name of its own that leads to 127.0.0.1 reads nothing (DNS rebinding)."""
    for path in ("/v1/locate?key=lobby", "/metrics", "/readyz"):
        refused = await redirector.http.get(path, headers={"host": "evil.example"})
        assert (refused.status_code, refused.json()["title"]) == (403, "Permission denied")


async def test_silent_connections_do_not_close_its_http(redirector: Redirector) -> None:
    host, _, port = str(redirector.ready["http"]).rpartition(":")
    silent = []
    try:
        for number in range(1_010):
            silent.append(socket.create_connection((host, int(port))))
            if number % 3:
                silent[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: loc" if number % 3 == 1 else b"G")
        for path in ("/healthz", "/v1/locate?key=lobby"):
            assert (await redirector.http.get(path, timeout=WAIT_S)).status_code == 200
    finally:
        for one in silent:
            one.close()


async def test_it_is_healthy_and_ready(redirector: Redirector) -> None:
    assert (await redirector.http.get("/healthz")).json() == {"healthy": True}
    assert (await redirector.http.get("/readyz")).json() == {"ready": True, "map_version": 1, "age_ms": 0}


async def test_bad_keys_are_refused_with_what_and_why(redirector: Redirector) -> None:
    error = await refused(redirector, [b"good", b"k" * 300])
    assert isinstance(error, InvalidName)
    assert (error.message, error.limit, error.value) == ("key name is 300 bytes; the limit is 255", 255, 300)
    error = await refused(redirector, [b"k"] * 10_001)
    assert isinstance(error, TooLarge)
    assert (error.subject, error.limit, error.value) == ("keys", 10_000, 10_001)


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("/v1/locate", 400, {"title": "Malformed", "subject": "key", "limit": 0, "value": 0}),
        ("/v1/locate?key=", 400, {"title": "Invalid name", "subject": "", "limit": 255, "value": 0}),
        (f"/v1/locate?key={'k' * 256}", 400, {"type": "urn:shoal:error:InvalidName", "limit": 255, "value": 256}),
        ("/v1/locate?" + "&key=k" * 1001, 413, {"title": "Too large", "subject": "keys", "limit": 1000, "value": 1001}),
        ("/v1/locate?key=a&keys=b", 400, {"title": "Malformed", "subject": "keys"}),
        ("/v1/nothing", 404, {"title": "Malformed", "detail": "GET /v1/nothing: Not Found"}),
    ],
    ids=["no key", "empty key", "long key", "many keys", "unknown parameter", "no such path"],
)
async def test_bad_http_is_a_problem_with_its_figures(
    redirector: Redirector, path: str, status: int, problem: dict[str, object]
) -> None:
    answer = await redirector.http.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert set(answer.json()) == {"type", "title", "status", "detail", "subject", "limit", "value"}
    assert answer.json()["status"] == status
    assert {name: answer.json()[name] for name in problem} == problem


async def test_a_watcher_gets_the_whole_map_then_what_changes(redirector: Redirector, client: EtcdClient) -> None:
    async with watching(redirector) as call:
        first = await next_of(call)
        assert (first.map_version, first.partitions, tuple(first.owners)) == (1, PARTITIONS, EVEN.owners)
        assert [each.slice for each in first.slices] == list(SLICES)
        await replace_map(client, CLUSTER, EVEN, EVEN.moved({0: "s3", 63: "s9"}))
        second = await next_of(call)
        assert (second.map_version, second.partitions) == (2, 0)
        assert (list(second.moved), list(second.owners)) == ([0, 63], [2, 3])
        assert [each.slice for each in second.slices] == [*SLICES, "s9"]


async def test_a_watcher_learns_a_leaders_address(redirector: Redirector, client: EtcdClient) -> None:
    async with watching(redirector) as call:
        await next_of(call)
        node = NodeRecord("n1", "127.0.0.1:7001", "s1")
        registration = await register_node(client, CLUSTER, node, ttl_s=10, on_loss=lambda: None)
        await claim_slice_leadership(client, CLUSTER, "s1", registration, ClaimedData("d" * 32, 0))
        change = await next_of(call)
        assert (change.map_version, list(change.moved)) == (1, [])
        assert change.slices[0] == wire.SliceAddress(slice="s1", address="127.0.0.1:7001", epoch=1)
        await registration.end()


async def test_a_leader_has_an_address_only_while_it_is_registered_there(
    redirector: Redirector, client: EtcdClient
) -> None:
    """Another cluster's slice may listen at its former address, and would take what clients send there."""
    data = ClaimedData("d" * 32, 0)
    async with watching(redirector) as call:
        await next_of(call)
        first = await register_node(
            client, CLUSTER, NodeRecord("n1", "127.0.0.1:7001", "s1"), ttl_s=10, on_loss=lambda: None
        )
        claimed = await claim_slice_leadership(client, CLUSTER, "s1", first, data)
        assert (await next_of(call)).slices[0].address == claimed.leader_address == "127.0.0.1:7001"
        await first.end()
        assert (await next_of(call)).slices[0] == wire.SliceAddress(slice="s1", epoch=1)
        again = await register_node(
            client, CLUSTER, NodeRecord("n1", "127.0.0.1:7002", "s1"), ttl_s=10, on_loss=lambda: None
        )
        await claim_slice_leadership(client, CLUSTER, "s1", again, data)
        change = await next_of(call)
        assert change.slices[0] == wire.SliceAddress(slice="s1", address="127.0.0.1:7002", epoch=2)
        await again.end()


async def test_it_answers_from_its_last_map_while_etcd_is_away(
    redirector: Redirector, client: EtcdClient, etcd: LocalEtcd
) -> None:
    await etcd.kill()
    ages = [0]
    async with asyncio.timeout(WAIT_S):
        while ages[-1] < 200:
            answer = await redirector.stub.Locate(wire.LocateRequest(keys=KEYS))
            assert [answer.slices[owner].slice for owner in answer.owners] == [EVEN.owner_of(key) for key in KEYS]
            ages.append(answer.age_ms)
    assert ages == sorted(ages)
    assert (await redirector.http.get("/v1/locate?key=a")).json()["age_ms"] >= 200
    assert (await redirector.http.get("/readyz")).status_code == 200
    async with watching(redirector) as call:
        assert (await next_of(call)).age_ms >= 200
        await etcd.start()
        await replace_map(client, CLUSTER, EVEN, EVEN.moved({0: "s2"}))
        change = await next_of(call)
        assert (change.map_version, change.age_ms) == (2, 0)


async def test_a_damaged_record_leaves_the_last_map_standing(redirector: Redirector, client: EtcdClient) -> None:
    async with watching(redirector) as call:
        await next_of(call)
        await client.put(f"/shoal/{CLUSTER}/map".encode(), b"{}")
        async with asyncio.timeout(WAIT_S):
            answer = await redirector.stub.Locate(wire.LocateRequest(keys=KEYS))
            while not answer.age_ms:
                answer = await redirector.stub.Locate(wire.LocateRequest(keys=KEYS))
        assert answer.map_version == 1
        await client.put(f"/shoal/{CLUSTER}/map".encode(), EVEN.moved({0: "s2"}).encode())
        assert (await next_of(call)).map_version == 2


async def test_it_listens_on_ipv6(etcd: LocalEtcd, cluster: None) -> None:
    for listen, at in (("[::1]:0", ("[::1]",)), ("[::]:0", ("[::1]", "127.0.0.1"))):
        async with AsyncExitStack() as stack:
            process = await launch(etcd.endpoint, "--listen", listen, "--http", listen)
            stack.push_async_callback(end, process)
            ready = (await until_ready(process, stack)).ready
            for one in at:
                port = str(ready["http"]).rpartition(":")[2]
                async with httpx.AsyncClient(trust_env=False) as http:
                    assert (await http.get(f"http://{one}:{port}/healthz")).status_code == 200
                port = str(ready["grpc"]).rpartition(":")[2]
                async with grpc.aio.insecure_channel(f"{one}:{port}") as channel:
                    stub: RedirectorServiceAsyncStub = RedirectorServiceStub(channel)
                    assert (await stub.Locate(wire.LocateRequest(keys=[b"a"]))).map_version == 1


async def test_before_the_cluster_exists_it_is_healthy_and_not_ready(etcd: LocalEtcd, client: EtcdClient) -> None:
    async with AsyncExitStack() as stack:
        process = await launch(etcd.endpoint)
        stack.push_async_callback(end, process)
        ready = asyncio.ensure_future(until_ready(process, stack))
        done, _ = await asyncio.wait([ready], timeout=2)
        assert not done
        await create_cluster(client, CLUSTER, SLICES, PARTITIONS)
        redirector = await ready
        assert (await redirector.http.get("/readyz")).status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_cleanly_and_ends_watches(redirector: Redirector, number: signal.Signals) -> None:
    assert redirector.process.stdout is not None
    async with watching(redirector) as call:
        await next_of(call)
        redirector.process.send_signal(number)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await next_of(call)
        assert isinstance(from_rpc_error(caught.value), Unavailable)
    async with asyncio.timeout(WAIT_S):
        assert await redirector.process.wait() == 0
        assert await redirector.process.stdout.read() == b""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--cluster", "Bad Name"), 2, "cluster name 'Bad Name'"),
        (("--etcd", "nowhere"), 2, "etcd endpoint 'nowhere' is not host:port"),
        (("--listen", "256.0.0.1:1"), 1, "cannot listen on 256.0.0.1:1"),
        (("--http", "256.0.0.1:1"), 1, "cannot listen on 256.0.0.1:1"),
        (("--http", "nonsense"), 1, "cannot listen on nonsense"),
    ],
)
async def test_bad_arguments_end_it_with_a_sentence(arguments: tuple[str, ...], code: int, said: str) -> None:
    command = [sys.executable, "-m", "shoal_redirector", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command += ["--etcd", "127.0.0.1:1", "--cluster", CLUSTER, *arguments]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(WAIT_S):
        _, logged = await process.communicate()
    assert process.returncode == code
    assert said in logged.decode()
