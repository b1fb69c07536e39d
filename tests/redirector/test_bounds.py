"""A real redirector at its bounds: as many watchers as its memory is for, and requests that are no messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from shoal_contract.errors import DeadlineExceeded, Malformed, ResourceExhausted
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.partition_map import PartitionMap
from shoal_contract.wire import redirector_pb2 as wire
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceStub
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster import create_cluster
from shoal_local.etcd import LocalEtcd
from shoal_redirector import limits
from tests.coordination.cluster_records import replace_map
from tests.redirector.conftest import CLUSTER, SLICES, WAIT_S, Redirector, end, launch, until_ready
from tests.runtime.passed_over import send_until_ended
from tests.runtime.resets import connect

PARTITIONS = 4096
MEMORY_MIB = 199  # 601 watchers: with fewer, what the first ones cost once shows in the cost of each.
WATCHERS = limits.watchers_max(MEMORY_MIB)
Watch = grpc.aio.UnaryStreamCall[wire.WatchMapRequest, wire.WatchMapResponse]


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * 4096


async def watch(redirector: Redirector, stack: AsyncExitStack) -> Watch:
    """By a connection of its own, as clients do."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = grpc.aio.insecure_channel(str(redirector.ready["grpc"]), options)
    await stack.enter_async_context(channel)
    call: Watch = RedirectorServiceStub(channel).WatchMap(wire.WatchMapRequest())
    stack.callback(call.cancel)
    return call


async def versions(calls: list[Watch]) -> set[int]:
    """Of the next response to each."""
    async with asyncio.timeout(WAIT_S):
        responses = await asyncio.gather(*(call.read() for call in calls))
    return {response.map_version for response in responses if isinstance(response, wire.WatchMapResponse)}


@pytest.mark.slow
async def test_as_many_watchers_as_its_memory_is_for(etcd: LocalEtcd, client: EtcdClient) -> None:
    await create_cluster(client, CLUSTER, SLICES, PARTITIONS)
    even = PartitionMap.even(SLICES, PARTITIONS)
    async with AsyncExitStack() as stack:
        process = await launch(etcd.endpoint, "--memory-mib", str(MEMORY_MIB))
        stack.push_async_callback(end, process)
        redirector = await until_ready(process, stack)
        before = resident_bytes(process.pid)
        calls = [await watch(redirector, stack) for _ in range(WATCHERS)]
        assert await versions(calls) == {1}
        each = (resident_bytes(process.pid) - before) / WATCHERS
        assert each < limits.WATCHER_BYTES, "what one more watcher costs"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (await watch(redirector, stack)).read()
        refused = from_rpc_error(caught.value)
        assert isinstance(refused, ResourceExhausted)
        assert (refused.subject, refused.limit, refused.value) == ("watchers of the map", WATCHERS, WATCHERS + 1)
        assert "--memory-mib" in refused.message
        assert "shoal_redirector_watchers_refused_total 1.0" in (await redirector.http.get("/metrics")).text

        await replace_map(client, CLUSTER, even, even.moved({0: "s3"}))
        assert await versions(calls) == {2}
        assert resident_bytes(process.pid) < MEMORY_MIB << 20
        calls.pop().cancel()
        async with asyncio.timeout(WAIT_S):
            while await _is_refused(await watch(redirector, stack)):
                pass


async def _is_refused(call: Watch) -> bool:
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        return isinstance(from_rpc_error(error), ResourceExhausted)
    return False


async def test_too_little_memory_is_refused_at_the_start() -> None:
    process = await launch("127.0.0.1:1", "--memory-mib", "100", stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(WAIT_S):
        _, logged = await process.communicate()
    assert process.returncode == 2
    assert "--memory-mib 100 is too little: a redirector needs at least 173" in logged.decode()


async def test_what_is_no_message_is_malformed_and_leaves_others_alone(redirector: Redirector) -> None:
    call = redirector.stub.WatchMap(wire.WatchMapRequest())
    await call.read()
    nonsense: Any = redirector.channel.unary_unary("/shoal.v1.RedirectorService/Locate")
    for _ in range(20):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await nonsense(b"\xff\xff\xff")
        error = from_rpc_error(caught.value)
        assert isinstance(error, Malformed)
        assert "a request of 3 bytes is no message of this call" in error.message
    assert (await redirector.stub.Locate(wire.LocateRequest(keys=[b"a"]))).map_version == 1
    call.cancel()


async def test_many_large_locates_are_answered_or_refused_and_hold_little(redirector: Redirector) -> None:
    largest = wire.LocateRequest(keys=[b"k" * 255] * 10_000)
    before = resident_bytes(redirector.process.pid)
    peak = before
    calls = [asyncio.ensure_future(_located(redirector.channel, largest)) for _ in range(120)]
    while not all(call.done() for call in calls):
        peak = max(peak, resident_bytes(redirector.process.pid))
        await asyncio.sleep(0.01)
    assert {call.result() for call in calls} <= {10_000, 0}
    assert peak - before < limits.OTHER_BYTES - (50 << 20)


async def test_calls_without_a_request_hold_up_no_others(redirector: Redirector) -> None:
    locate: Any = redirector.channel.stream_unary("/shoal.v1.RedirectorService/Locate")
    silent = [locate() for _ in range(2 * limits.LOCATES_EACH_MAX)]
    await asyncio.gather(*(call.wait_for_connection() for call in silent))
    async with asyncio.timeout(WAIT_S):
        assert (await redirector.stub.Locate(wire.LocateRequest(keys=[b"a"]))).map_version == 1
        for call in silent:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert isinstance(from_rpc_error(caught.value), DeadlineExceeded)
    empty = locate()
    await empty.done_writing()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await empty
    assert isinstance(from_rpc_error(caught.value), Malformed)


async def test_silent_locates_of_one_connection_do_not_take_the_room_of_others(redirector: Redirector) -> None:
    """All others waited for a second, or were refused."""
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S):
        greedy = await stack.enter_async_context(_alone(redirector))
        locate: Any = greedy.stream_unary("/shoal.v1.RedirectorService/Locate")
        silent = [asyncio.ensure_future(_failure(locate())) for _ in range(limits.LOCATES_WAITING_MAX)]
        for _ in range(5):
            assert (await redirector.stub.Locate(wire.LocateRequest(keys=[b"a"]))).map_version == 1
        ended = 0
        for call in asyncio.as_completed(silent):  # Which of them have places is not known here; some are refused.
            ended += isinstance(await call, DeadlineExceeded)
            if ended == limits.LOCATES_EACH_MAX:
                break
        for task in silent:
            task.cancel()
        await asyncio.gather(*silent, return_exceptions=True)


async def test_watchers_of_one_connection_do_not_take_the_room_of_others(etcd: LocalEtcd, cluster: None) -> None:
    """No new client got a map any more."""
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S):
        process = await launch(etcd.endpoint, "--memory-mib", "173")
        stack.push_async_callback(end, process)
        redirector = await until_ready(process, stack)
        room = limits.watchers_max(173)
        channels = [await stack.enter_async_context(_alone(redirector)) for _ in range(limits.WATCHERS_EACH_MAX)]
        greedy = [RedirectorServiceStub(channels[i // limits.WATCHERS_EACH_MAX]) for i in range(room)]
        calls: list[Watch] = [stub.WatchMap(wire.WatchMapRequest()) for stub in greedy]
        assert await versions(calls) == {1}
        ends = [asyncio.ensure_future(_failure(call.read())) for call in calls]
        assert await versions([await watch(redirector, stack)]) == {1}
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert isinstance(next(iter(done)).result(), ResourceExhausted) and len(done) == 1
        assert await versions([await watch(redirector, stack) for _ in range(room // 2)]) == {1}
        for call in calls:
            call.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


async def test_requests_of_watchers_that_nobody_reads_hold_next_to_nothing(redirector: Redirector) -> None:
    """64 KiB of each was held, and a connection had a hundred: 4,000 of them took 400 MiB."""
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S):
        writes: list[asyncio.Future[None]] = []
        before = resident_bytes(redirector.process.pid)
        for _ in range(20):
            channel = await stack.enter_async_context(_alone(redirector))
            watch_map: Any = channel.stream_stream("/shoal.v1.RedirectorService/WatchMap")
            calls = [watch_map() for _ in range(limits.WATCHERS_EACH_MAX)]
            writes += [asyncio.ensure_future(call.write(b"x" * 60_000)) for call in calls]
            await asyncio.gather(*(call.read() for call in calls))
            # Comes after what those before it could send.
            await RedirectorServiceStub(channel).Locate(wire.LocateRequest(keys=[b"a"]))
        grown = resident_bytes(redirector.process.pid) - before
        for write in writes:
            write.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        assert grown / len(writes) < limits.WATCHER_BYTES


def _alone(redirector: Redirector) -> grpc.aio.Channel:
    """A connection of its own."""
    return grpc.aio.insecure_channel(str(redirector.ready["grpc"]), [("grpc.use_local_subchannel_pool", 1)])


async def _failure(call: Awaitable[Any]) -> Exception:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def _located(channel: grpc.aio.Channel, request: wire.LocateRequest) -> int:
    """How many keys; 0 if it was refused for want of room, or of time to read it."""
    try:
        return len((await RedirectorServiceStub(channel).Locate(request, timeout=WAIT_S)).owners)
    except grpc.aio.AioRpcError as error:
        assert isinstance(from_rpc_error(error), ResourceExhausted | DeadlineExceeded)
        return 0


async def test_the_log_of_nonsense_is_short(etcd: LocalEtcd, cluster: None) -> None:
    async with AsyncExitStack() as stack:
        process = await launch(etcd.endpoint, stderr=asyncio.subprocess.PIPE)
        stack.push_async_callback(end, process)
        redirector = await until_ready(process, stack)
        # A method of a service whose requests gRPC decodes is in tests/runtime/test_grpc_requests.py.
        nonsense: Any = redirector.channel.unary_unary("/shoal.v1.RedirectorService/Locate")
        for _ in range(300):
            with pytest.raises(grpc.aio.AioRpcError):
                await nonsense(b"\xff\xff\xff")
        process.terminate()
        assert process.stderr is not None
        logged = (await process.stderr.read()).decode()
    assert "Traceback" not in logged
    assert len(logged) < 5_000


async def test_on_sigterm_it_serves_on_and_says_that_it_is_not_ready(etcd: LocalEtcd, cluster: None) -> None:
    async with AsyncExitStack() as stack:
        process = await launch(etcd.endpoint, "--drain-s", "2")
        stack.push_async_callback(end, process)
        redirector = await until_ready(process, stack)
        watching = redirector.stub.WatchMap(wire.WatchMapRequest())
        await watching.read()
        assert (await redirector.http.get("/readyz")).status_code == 200
        loop = asyncio.get_running_loop()
        began = loop.time()
        process.terminate()
        while (await redirector.http.get("/readyz")).status_code != 503:
            assert loop.time() - began < WAIT_S
        assert (await redirector.http.get("/v1/locate?key=a")).status_code == 200
        assert (await redirector.http.get("/healthz")).status_code == 200
        assert (await redirector.stub.Locate(wire.LocateRequest(keys=[b"a"]))).map_version == 1
        async with asyncio.timeout(WAIT_S):
            assert await process.wait() == 0
        assert loop.time() - began >= 2


async def test_buffers_that_small_payloads_came_in_do_not_fill_it(etcd: LocalEtcd, cluster: None) -> None:
    """gRPC keeps 64 KiB for each 24 bytes of a request that nobody has read."""
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S):
        process = await launch(etcd.endpoint, "--memory-mib", str(MEMORY_MIB))
        stack.push_async_callback(end, process)
        redirector = await until_ready(process, stack)
        address, path = str(redirector.ready["grpc"]), "/shoal.v1.RedirectorService/Locate"
        await asyncio.to_thread(send_until_ended, address, path, 100, 1 << 30)
        assert (await redirector.stub.Locate(wire.LocateRequest(keys=[b"a"]))).map_version == 1


async def test_idle_connections_do_not_close_its_port(etcd: LocalEtcd, cluster: None) -> None:
    """All Locates from new connections failed, for as long as the idle ones stayed, and no line told it."""
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S):
        process = await launch(etcd.endpoint, "--memory-mib", "173")
        stack.push_async_callback(end, process)
        redirector = await until_ready(process, stack)
        host, _, port = str(redirector.ready["grpc"]).rpartition(":")
        for _ in range(limits.watchers_max(173) + limits.CALLS_BESIDE_WATCHERS + 10):
            idle = stack.enter_context(contextlib.closing(await asyncio.to_thread(connect, host, int(port))))
            idle.setblocking(False)
        newcomer = await stack.enter_async_context(_alone(redirector))
        locate = RedirectorServiceStub(newcomer).Locate
        assert (await locate(wire.LocateRequest(keys=[b"a"]), wait_for_ready=True)).map_version == 1
        metrics = (await redirector.http.get("/metrics")).text
        assert "shoal_redirector_connections_ended_for_room_total 0.0" not in metrics
