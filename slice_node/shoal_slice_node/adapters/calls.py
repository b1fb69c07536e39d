"""Keeps the calls of clients that one role serves, and ends them all when the role ends.

gRPC's handlers cannot be taken away, and its servers cannot be started again after a stop. So each server has one
handler for as long as the process runs (`CurrentHandlers`), which asks for those of the current role.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import grpc

from shoal_contract.errors import ShoalError
from shoal_runtime.aborting import abort
from shoal_runtime.unread import Serve
from shoal_slice_node.adapters.limits import CALLS_END_S

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]

_log = logging.getLogger(__name__)


class Calls:
    """Keeps the calls of one role. After `end` each call is answered with its error."""

    def __init__(self) -> None:
        self._serving: set[asyncio.Task[Any]] = set()
        """The tasks whose calls the role's handlers have now."""
        self._ending: frozenset[asyncio.Task[Any]] = frozenset()
        """Those of them that `end` cancelled."""
        self._error: ShoalError | None = None
        self._none_left = asyncio.Event()

    def kept(self, serve: Serve) -> Serve:
        """Returns the same handler of a stream, for one call, which is kept. While the client takes its time to hear
        that the role ended, nothing of the role is held."""
        of_role = [serve]
        del serve

        async def kept(requests: Any, context: Any) -> Any:
            if self._error is None and await self._served(of_role.pop(), requests, context):
                return
            of_role.clear()
            assert self._error is not None
            await abort(context, self._error)

        return kept

    async def _served(self, serve: Serve, requests: Any, context: Any) -> bool:
        """Serves a call. Returns False if the role ended before."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await serve(requests, context)
            return True
        except asyncio.CancelledError:
            if task not in self._ending:
                raise
            task.uncancel()
            return False
        finally:
            self._serving.discard(task)
            if not self._serving:
                self._none_left.set()

    async def end(self, error: ShoalError) -> None:
        """Ends all calls with `error`, and refuses later ones with it. Returns once no handler of the role runs."""
        self._error = error
        self._ending = frozenset(self._serving)
        for task in self._ending:
            task.cancel()
        self._none_left.clear()
        if self._serving:
            try:
                async with asyncio.timeout(CALLS_END_S):
                    await self._none_left.wait()
            except TimeoutError:
                _log.error("%d calls did not end within %g s: please report it", len(self._serving), CALLS_END_S)
        self._ending = frozenset()


class CurrentHandlers(grpc.GenericRpcHandler):
    """Gives a server's calls to the handlers of the current role. While there are none, each call is refused with
    `refusal`."""

    def __init__(self, refusal: ShoalError) -> None:
        self._handlers: Sequence[grpc.GenericRpcHandler] = ()
        self._calls = Calls()
        self._refusal = refusal
        self._refusing: Handler = grpc.stream_stream_rpc_method_handler(self._refuse)

    def serve(self, handlers: Sequence[grpc.GenericRpcHandler], calls: Calls) -> None:
        """Gives calls to these handlers from now on; they are kept in `calls`."""
        self._handlers, self._calls = handlers, calls

    def refuse(self, refusal: ShoalError) -> None:
        """Refuses calls from now on."""
        self._handlers, self._refusal = (), refusal

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        if not self._handlers:
            return self._refusing
        for handlers in self._handlers:
            found = handlers.service(handler_call_details)
            if found is not None:
                assert found.stream_stream is not None, "every call is served as a stream (unary.py)"
                return grpc.stream_stream_rpc_method_handler(self._calls.kept(cast(Serve, found.stream_stream)))
        return None

    async def _refuse(self, _: object, context: Any) -> None:
        await abort(context, self._refusal)
