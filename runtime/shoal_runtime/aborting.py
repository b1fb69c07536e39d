"""Writes to a gRPC call whose client may leave at any time, and ends it with a typed error, even if its client does
not read.

Belongs here: what a server sends. Does not: the form of the error (shoal_contract.grpc_errors).
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import grpc

from shoal_contract.errors import METADATA_KEY, ShoalError, cut_text
from shoal_contract.grpc_errors import status_of
from shoal_contract.limits import STATUS_TEXT_BYTES_MAX
from shoal_runtime.hang_up import hang_up
from shoal_runtime.limits import ABORT_S
from shoal_runtime.patience import patience_for


async def send_headers(context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """Sends the headers of a call. Call it first where a call may be aborted while a response is being written.

    gRPC sends the headers with the first response, and knows this only when that response is written. An abort before
    that tries to send them again, which fails: the client would never hear of the abort. Raises CancelledError if the
    client has left.
    """
    try:
        await context.send_initial_metadata(())
    except grpc.aio.InternalError:
        raise _left() from None


async def write(context: grpc.aio.ServicerContext[Any, Any], response: bytes) -> None:
    """Writes one response of a stream. Raises CancelledError if the client has left."""
    try:
        await context.write(response)
    except grpc.aio.InternalError:
        raise _left() from None


def _left() -> asyncio.CancelledError:
    """Returns what to raise where the client left during a write. gRPC itself raises it only where its news of the end
    comes before the write; else it raises an error of its own, and would log it as the server's fault."""
    return asyncio.CancelledError("the client left while it was written to")


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: ShoalError, within_s: float = ABORT_S) -> NoReturn:
    """Ends the call with the error's status and metadata. Raises grpc's own AbortError, which must not be caught.

    The client gets the error after what was written before. If it does not read that within `within_s` seconds, its
    connection is shut down, which ends all its calls; so only time in which this process ran counts. The call is then
    cancelled: raises CancelledError."""
    # gRPC drops a call with trailers above 8 KiB, and the error with it: its texts are cut, here and in `to_wire`.
    # A traceback refers to frames that hold the request, and through a task back to the error: such a cycle keeps MiBs
    # until the garbage collector runs, which is seldom.
    error.__traceback__ = error.__context__ = None
    sent = error.to_wire()
    text = cut_text(sent.message, STATUS_TEXT_BYTES_MAX)
    try:
        async with patience_for(within_s):
            await context.abort(status_of(error), text, ((METADATA_KEY, sent.SerializeToString()),))
    except grpc.aio.AbortError as aborted:
        _free_once_ended(aborted)
        raise
    except TimeoutError:
        await hang_up(context.peer())
        raise asyncio.CancelledError("the client did not read: it was hung up on") from None
    except grpc.aio.UsageError:  # The call was aborted before, and its connection was shut down meanwhile.
        raise asyncio.CancelledError("the call has been aborted already") from None
    except grpc.aio.InternalError:
        raise asyncio.CancelledError("the client left before it could be told") from None
    raise AssertionError("abort returned")


def _free_once_ended(aborted: grpc.aio.AbortError) -> None:
    """Lets go of all frames that an abort passed, once its call has ended: gRPC keeps the abort with the call, which
    these frames name, and such a circle would stay until the garbage collector runs, which is seldom."""
    task = asyncio.current_task()
    assert task is not None

    def free(_: asyncio.Task[Any]) -> None:
        aborted.__traceback__ = aborted.__context__ = None

    task.add_done_callback(free)
