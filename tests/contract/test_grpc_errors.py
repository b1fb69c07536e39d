"""Typed errors cross a real gRPC connection whole; foreign statuses become the nearest typed error."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import pytest

from shoal_contract import errors
from shoal_contract.grpc_errors import from_rpc_error, status_of
from shoal_contract.limits import ERROR_TEXT_BYTES_MAX
from shoal_contract.wire import common_pb2
from shoal_contract.wire.redirector_pb2 import LocateRequest
from shoal_contract.wire.redirector_pb2_grpc import (
    RedirectorServiceServicer,
    RedirectorServiceStub,
    add_RedirectorServiceServicer_to_server,
)
from shoal_runtime.aborting import abort

LEAVES = [
    errors.NotOwner, errors.NotLeader, errors.Unavailable, errors.Fenced, errors.DeadlineExceeded,
    errors.ResourceExhausted, errors.InvalidName, errors.TooLarge, errors.Unroutable, errors.NoSuchQueue,
    errors.Conflict, errors.CrossSlice, errors.OutOfRange, errors.Malformed, errors.Unauthenticated,
    errors.PermissionDenied, errors.Corrupt,
]  # fmt: skip


class _Failing(RedirectorServiceServicer):
    """Answers each Locate with the failure it was given; without one it never answers."""

    def __init__(self) -> None:
        self.failure: Exception | None = None

    async def Locate(self, request: LocateRequest, context: Any) -> Any:  # noqa: N802 - grpc's name
        if isinstance(self.failure, errors.ShoalError):
            await abort(context, self.failure)
        if self.failure is None:
            await asyncio.Event().wait()
        raise self.failure or AssertionError

    def WatchMap(self, request: Any, context: Any) -> Any:  # noqa: N802 - grpc's name
        raise NotImplementedError


@pytest.fixture
async def failing() -> AsyncIterator[tuple[_Failing, RedirectorServiceStub]]:
    service, server = _Failing(), grpc.aio.server()
    add_RedirectorServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield service, RedirectorServiceStub(channel)
    finally:
        await server.stop(0)


async def _fail(failing: tuple[_Failing, Any], failure: Exception) -> errors.ShoalError:
    service, stub = failing
    service.failure = failure
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Locate(LocateRequest())
    return from_rpc_error(caught.value)


@pytest.mark.parametrize("cls", LEAVES, ids=lambda cls: cls.__name__)
async def test_every_error_arrives_with_all_its_fields(cls: type[errors.ShoalError], failing: Any) -> None:
    sent = cls("it broke", subject="q\u00fc", limit=1, value=2, map_version=3, owner="s1", leader="h:1", position=4)
    received = await _fail(failing, sent)
    assert type(received) is cls
    assert received.to_wire() == sent.to_wire()


def test_every_error_code_has_a_status() -> None:
    codes = set(common_pb2.ErrorCode.values()) - {common_pb2.ERROR_CODE_UNSPECIFIED}
    assert {cls.code for cls in LEAVES} == codes
    assert all(status_of(cls("")) is not grpc.StatusCode.UNKNOWN for cls in LEAVES)


async def test_long_texts_are_cut_and_still_arrive(failing: Any) -> None:
    received = await _fail(failing, errors.InvalidName("\U0001f41f" * 5000, subject="\U0001f41f" * 5000))
    assert isinstance(received, errors.InvalidName)
    assert len(received.message.encode()) == len(received.subject.encode()) == ERROR_TEXT_BYTES_MAX


async def test_a_crash_of_the_handler_is_an_unknown_outcome(failing: Any) -> None:
    received = await _fail(failing, ZeroDivisionError("bug"))
    assert isinstance(received, errors.OutcomeUnknown)


async def test_a_dead_server_is_unavailable() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await RedirectorServiceStub(channel).Locate(LocateRequest(), timeout=5)
    assert isinstance(from_rpc_error(caught.value), errors.Unavailable)


async def test_a_late_answer_is_deadline_exceeded(failing: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await failing[1].Locate(LocateRequest(), timeout=0.05)
    assert isinstance(from_rpc_error(caught.value), errors.DeadlineExceeded)


def test_a_bare_rpc_error_is_unavailable() -> None:
    assert isinstance(from_rpc_error(grpc.RpcError("odd")), errors.Unavailable)


async def test_a_call_that_was_aborted_already_is_cancelled() -> None:
    """Its client was hung up on while the first abort waited: a traceback in the log, and nothing else to be done."""

    class Aborted:
        async def abort(self, *_: object) -> None:
            raise grpc.aio.UsageError("Abort already called!")

    with pytest.raises(asyncio.CancelledError, match="aborted already"):
        await abort(cast(Any, Aborted()), errors.Unavailable("once more"))
