"""Asks who serves a slice."""

from __future__ import annotations

import asyncio
import contextlib

import grpc

from shoal_contract.wire import slice_pb2 as wire

from .node_process import NodeProcess

WAIT_S = 60


async def serves(node: NodeProcess) -> None:
    """Returns once it takes changes."""
    async with asyncio.timeout(WAIT_S), node.stub() as stub:
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await stub.Declare(wire.DeclareRequest(queue=b"q"), timeout=1)
                return
