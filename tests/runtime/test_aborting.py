"""A write to a client that leaves just then ends the call quietly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from shoal_runtime.aborting import send_headers, write


class Left:
    """A call whose client left: gRPC has not told of it yet, and each write fails."""

    async def write(self, response: bytes) -> None:
        raise grpc.aio.InternalError('Failed "execute_batch"')

    async def send_initial_metadata(self, metadata: object) -> None:
        raise grpc.aio.InternalError('Failed "execute_batch"')


@pytest.mark.parametrize(
    "send", [send_headers, lambda context: write(context, b"response")], ids=["headers", "response"]
)
async def test_a_client_that_left_cancels_the_call(send: Callable[[Any], Awaitable[None]]) -> None:
    with pytest.raises(asyncio.CancelledError, match="left"):
        await send(Left())
