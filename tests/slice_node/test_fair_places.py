"""Exports, verifications, lists: a connection with many leaves places to others, and so does one that stands still."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from shoal_contract.errors import Malformed, ResourceExhausted, ShoalError
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import admin_pb2 as wire
from shoal_contract.wire.admin_pb2_grpc import AdminServiceStub
from shoal_contract.wire.bulk_pb2 import ExportRequest, VerifyRequest
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub
from shoal_slice_node.adapters import admin_service, bulk_service
from shoal_slice_node.adapters.limits import VERIFICATIONS
from shoal_slice_node.core.read.listing import Page

from .brokers import connections
from .bulk_client import chunk, imports

WAIT_S = 60


def silent_verifications(channel: grpc.aio.Channel, count: int) -> list[asyncio.Future[Any]]:
    verify: Any = channel.stream_stream("/shoal.v1.BulkService/Verify")
    return [asyncio.ensure_future(verify().read()) for _ in range(count)]


async def exported(channel: grpc.aio.Channel) -> int:
    """How many pages."""
    call: Any = BulkServiceStub(channel).Export(ExportRequest())
    return len([page async for page in call])


async def ended(calls: list[asyncio.Future[Any]]) -> None:
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def verified(channel: grpc.aio.Channel) -> int:
    """How many answers."""
    call: Any = channel.stream_stream("/shoal.v1.BulkService/Verify")()
    await call.done_writing()
    return len([answer async for answer in call])


async def test_many_silent_verifications_hold_up_no_export_and_those_of_one_connection_no_other(tmp_path: Path) -> None:
    """They held all places, one after the other, each for a minute."""
    async with connections(tmp_path, 3) as (greedy, honest, _), asyncio.timeout(WAIT_S):
        calls = silent_verifications(greedy, 20)
        await asyncio.wait(calls, timeout=0.01)
        assert await exported(honest) == 1 and await verified(honest) == 0
        assert not any(call.done() for call in calls[: VERIFICATIONS.places_each_max])
        await ended(calls)


async def test_silent_verifications_of_many_connections_end_when_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_service, "SNAPSHOT_STALL_CROWDED_S", 0.2)
    async with connections(tmp_path, VERIFICATIONS.places_max + 1) as (honest, *silent), asyncio.timeout(WAIT_S):
        calls = [call for channel in silent for call in silent_verifications(channel, 1)]
        assert not (await asyncio.wait(calls, timeout=1))[0], "alone they have their time"
        assert await exported(honest) == 1
        assert not any(call.done() for call in calls), "an export has places of its own"
        assert await verified(honest) == 0
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        error = failure_of(done)
        assert isinstance(error, ResourceExhausted) and "others wait for its place" in error.message
        await ended(calls)


async def test_a_verification_that_never_ends_has_its_place_for_a_turn_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that asked for little every 4 s kept all others out for good."""
    monkeypatch.setattr(bulk_service, "VERIFY_TURN_S", 0.2)
    change = chunk(1, imports({b"q": [b"k"]})).change
    async with connections(tmp_path, VERIFICATIONS.places_max + 1) as (honest, *greedy), asyncio.timeout(WAIT_S):

        async def drip(channel: grpc.aio.Channel) -> None:
            call: Any = BulkServiceStub(channel).Verify()
            while True:
                await call.write(VerifyRequest(chunk=1, change=change))
                await call.read()
                await asyncio.sleep(0.01)

        calls: list[asyncio.Future[Any]] = [asyncio.ensure_future(drip(channel)) for channel in greedy]
        assert not (await asyncio.wait(calls, timeout=0.5))[0], "alone they may go on"
        assert await verified(honest) == 0
        await ended(calls)


@pytest.mark.parametrize(
    "sent", [b"\xff", VerifyRequest(chunk=1, change=b"\xff").SerializeToString(), VerifyRequest().SerializeToString()]
)
async def test_what_is_no_verification_is_malformed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], sent: bytes
) -> None:
    """The process that reads for it died of it: the client was to ask again, and the log had a traceback."""
    async with connections(tmp_path, 1) as (channel,), asyncio.timeout(WAIT_S):
        call: Any = channel.stream_stream("/shoal.v1.BulkService/Verify")()
        await call.write(sent)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        assert isinstance(from_rpc_error(caught.value), Malformed)
        assert await verified(channel) == 0
    assert "Traceback" not in capfd.readouterr().err


def failure_of(done: set[asyncio.Future[Any]]) -> ShoalError:
    failure = next(iter(done)).exception()
    assert isinstance(failure, grpc.aio.AioRpcError)
    return from_rpc_error(failure)


async def test_many_long_lists_of_one_connection_hold_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listing(state: object, prefix: bytes, after: bytes, limit: int) -> Page[bytes]:
        while prefix == b"long":
            yield
        return [], b""

    monkeypatch.setattr(admin_service, "list_queues", listing)
    async with connections(tmp_path, 3) as (greedy, honest, _), asyncio.timeout(WAIT_S):
        long: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(AdminServiceStub(greedy).ListQueues(wire.ListQueuesRequest(prefix=b"long")))
            for _ in range(10)
        ]
        assert not (await asyncio.wait(long, timeout=0.3))[0]
        assert not (await AdminServiceStub(honest).ListQueues(wire.ListQueuesRequest())).queues
        await ended(long)
