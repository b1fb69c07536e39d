"""Bulk load and export against a real node: chunks, repeats, kill -9 in the middle, verification, serving after."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.errors import Conflict, Malformed, OutOfRange, ShoalError, TooLarge, from_wire
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import IMPORT_OPERATIONS_MAX
from shoal_contract.wire import bulk_pb2 as wire
from shoal_contract.wire import common_pb2, slice_pb2
from shoal_slice_node.storage.offline import CheckReport, check_path

from .bulk_client import RUN, Memberships, bulk_stub, chunk, import_all, imports, live_memberships, verify_all
from .core_driver import publish
from .node_process import NodeProcess

BIG = b"\xff big \x00 group"
QUEUES = 6_000
WAIT_S = 60


def population() -> dict[bytes, list[bytes]]:
    """One group of all, small ones, odd names."""
    return {
        b"q\xf0\x9f\x90\x9f-%05d" % number: [BIG, b"group-%d" % (number // 3), b"k%d" % (number % 7)]
        for number in range(QUEUES)
    }


def chunks_of(memberships: Memberships, run: bytes = RUN) -> list[wire.ImportRequest]:
    found: list[wire.ImportRequest] = []
    part: dict[bytes, list[bytes]] = {}
    operations = 0
    for queue, keys in sorted(memberships.items()):
        if operations + 1 + len(keys) > IMPORT_OPERATIONS_MAX:
            found.append(chunk(len(found) + 1, imports(part), run))
            part, operations = {}, 0
        part[queue] = list(keys)
        operations += 1 + len(keys)
    return [*found, chunk(len(found) + 1, imports(part), run)]


async def exported(node: NodeProcess) -> dict[bytes, set[bytes]]:
    async with bulk_stub(node.address) as stub:
        return live_memberships([page async for page in stub.Export(wire.ExportRequest())])


async def refusal(node: NodeProcess, *chunks: wire.ImportRequest) -> ShoalError:
    async with bulk_stub(node.address) as stub:
        answers = await import_all(stub, chunks)
    assert answers[-1].HasField("error")
    return from_wire(answers[-1].error)


async def test_what_is_imported_is_exported_verified_and_served(tmp_path: Path) -> None:
    node = await NodeProcess.start(tmp_path, "--delta-rows", "4000")
    memberships = population()
    chunks = chunks_of(memberships)
    async with bulk_stub(node.address) as stub:
        answers = await import_all(stub, chunks)
        assert [answer.chunk for answer in answers] == list(range(1, len(chunks) + 1))
        assert sum(answer.bindings_made for answer in answers) == 3 * QUEUES
        verified = await verify_all(stub, chunks)
        assert (sum(one.found for one in verified), sum(one.missing for one in verified)) == (3 * QUEUES, 0)
    assert await exported(node) == {queue: set(keys) for queue, keys in memberships.items()}
    async with node.stub() as slice_stub:
        sent = await slice_stub.Publish(slice_pb2.PublishRequest(key=BIG, chunk=one_message(b"hello")))
        assert sent.queues == QUEUES
        queue = next(iter(memberships))
        await slice_stub.Unbind(slice_pb2.UnbindRequest(queue=queue, keys=[b"k0"]))
        pull = slice_pb2.Pull(queue=queue, messages_max=10)
        pulled = await slice_stub.Pull(slice_pb2.PullRequest(pull=pull))
        assert [list(parse_chunk(one.chunk).bodies) for one in pulled.deliveries] == [[b"hello"]]
    assert await node.stop() == 0
    node = await NodeProcess.start(tmp_path)
    assert (await exported(node))[queue] == {BIG, b"group-0"}
    assert await node.stop() == 0
    assert check_path(tmp_path).sound


def one_message(body: bytes) -> common_pb2.Chunk:
    return parse_chunk(encode_chunk([body]))


async def checked_once_released(data: Path) -> CheckReport:
    """A killed node's checkpointer ends its last commit before it lets go of the folder."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await asyncio.to_thread(check_path, data)
            except Conflict:
                await asyncio.sleep(0.01)


async def test_killed_in_the_middle_it_goes_on_where_it_was(tmp_path: Path) -> None:
    memberships = population()
    chunks = chunks_of(memberships)
    answered = 0
    for stop_at in (5, 12, 13):
        node = await NodeProcess.start(tmp_path, "--delta-rows", "2000")
        async with bulk_stub(node.address) as stub:
            status = await stub.ImportStatus(wire.ImportStatusRequest(run=RUN))
            assert status.chunk >= answered
            call = stub.Import(iter(chunks[status.chunk :]))
            try:
                async for answer in call:
                    answered = answer.chunk
                    if answered >= stop_at:
                        await node.kill()
            except grpc.RpcError:
                pass
        await node.kill()
        assert (await checked_once_released(tmp_path)).sound
    node = await NodeProcess.start(tmp_path)
    async with bulk_stub(node.address) as stub:
        status = await stub.ImportStatus(wire.ImportStatusRequest(run=RUN))
        assert status.chunk >= answered
        await import_all(stub, chunks[status.chunk :])
        assert sum(one.missing for one in await verify_all(stub, chunks)) == 0
    assert await exported(node) == {queue: set(keys) for queue, keys in memberships.items()}
    assert await node.stop() == 0
    assert check_path(tmp_path).sound


async def test_chunks_that_cannot_be_are_refused_and_change_nothing(tmp_path: Path) -> None:
    node = await NodeProcess.start(tmp_path)
    good = chunk(1, imports({b"q": [b"a"]}))
    damaged = chunk(1, imports({b"q": [b"a"]}))
    damaged.checksum ^= 1
    large = chunk(1, imports({b"q": [b"key-%d" % number for number in range(IMPORT_OPERATIONS_MAX)]}))
    other = chunk(1, publish("a", b"x"))
    for bad, kind, words in (
        (damaged, Malformed, "checksum"),
        (large, TooLarge, f"the limit is {IMPORT_OPERATIONS_MAX}"),
        (other, Malformed, "one step, imports"),
        (chunk(1, imports({b"q": [b"a"]}), b"short"), Malformed, "it needs 16"),
        (chunk(2, imports({b"q": [b"a"]})), OutOfRange, "the next is 1"),
    ):
        error = await refusal(node, bad)
        assert isinstance(error, kind) and words in error.message
    assert await exported(node) == {}
    async with bulk_stub(node.address) as stub:
        first, again = await import_all(stub, [good]), await import_all(stub, [good])
        assert first == again and first[0].bindings_made == 1
        with pytest.raises(grpc.RpcError) as raised:
            await verify_all(stub, [other])
        assert isinstance(from_rpc_error(raised.value), Malformed)
        status = await stub.ImportStatus(wire.ImportStatusRequest(run=bytes(range(16))))
        assert status.chunk == 0
    assert await exported(node) == {b"q": {b"a"}}
    await node.kill()
