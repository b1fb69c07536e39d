"""Answers requests that cannot be decoded with Malformed, and `shoal.v1.Error` in the trailer, as other bad requests.

gRPC itself answers UNKNOWN with the name of one of our exceptions, and logs a traceback for each such request.
Belongs here: decoding as a server does it. Not here: what a message must hold (each service).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from shoal_contract.decode_error import DecodeError
from shoal_contract.errors import Malformed
from shoal_runtime.aborting import abort
from shoal_runtime.rare_log import RareLog

_log = logging.getLogger(__name__)
Request = TypeVar("Request")
Decode = Callable[[bytes], Any]

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]


class _Undecodable(Exception):
    """Says that the bytes that arrived are not a message of the type that the call takes. It is no ShoalError, because
    only `DecodingChecked` may catch it."""


def decode(decoder: Callable[[bytes], Request], data: bytes) -> Request:
    """Decodes a request, for services that read bytes. Raises Malformed."""
    try:
        return decoder(data)
    except DecodeError as error:
        raise Malformed(f"a request of {len(data)} bytes is no message of this call: {error}"[:500]) from None


class DecodingChecked(grpc.aio.ServerInterceptor):
    """Makes every handler of a server answer Malformed for what it cannot decode. Each server has one."""

    def __init__(self) -> None:
        self._bad = RareLog(_log)
        self._checked: dict[str, Handler] = {}
        """The checked handlers, by method. Only existing methods get here, so their number is bounded."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        method = str(handler_call_details.method)
        checked = self._checked.get(method)
        if checked is None:
            handler = await continuation(handler_call_details)
            if handler is None or handler.request_deserializer is None:
                return handler
            checked = self._checked[method] = self._check(handler, method)
        return checked

    def _check(self, handler: Handler, method: str) -> Handler:
        decoder = handler.request_deserializer
        assert decoder is not None
        kinds: dict[tuple[bool, bool], tuple[str, Any]] = {
            (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
            (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
            (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
            (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
        }
        name, make = kinds[bool(handler.request_streaming), bool(handler.response_streaming)]
        behaviour = self._guarded(getattr(handler, name), method)
        decoding = _raising(decoder) if handler.request_streaming else _returning(decoder)
        checked: Handler = make(behaviour, decoding, handler.response_serializer)
        return checked

    def _guarded(self, behaviour: Any, method: str) -> Any:
        """Returns the same kind of function, since gRPC distinguishes them: a generator, or one that is awaited."""
        if inspect.isasyncgenfunction(behaviour):

            async def generating(request: Any, context: Context) -> AsyncIterator[Any]:
                try:
                    _raise_if_undecodable(request)
                    async with aclosing(behaviour(request, context)) as responses:
                        async for response in responses:
                            yield response
                except _Undecodable as error:
                    await self._refuse(context, method, error)

            return generating

        async def awaited(request: Any, context: Context) -> Any:
            try:
                _raise_if_undecodable(request)
                return await behaviour(request, context)
            except _Undecodable as error:
                await self._refuse(context, method, error)

        return awaited

    async def _refuse(self, context: Context, method: str, error: _Undecodable) -> None:
        self._bad.warning("a request to %s from %s cannot be read, and was refused", method, context.peer())
        await abort(context, Malformed(str(error), subject=method))


def _raise_if_undecodable(request: Any) -> None:
    if isinstance(request, _Undecodable):
        raise request


def _returning(decoder: Decode) -> Decode:
    """Returns a decoder for one request, which returns the error instead of raising it: gRPC decodes the request before
    it calls the handler, and only the handler can answer."""

    raising = _raising(decoder)

    def decoding(data: bytes) -> Any:
        try:
            return raising(data)
        except _Undecodable as error:
            return error

    return decoding


def _raising(decoder: Decode) -> Decode:
    """Returns a decoder for a stream, which raises the error: gRPC decodes a request where the handler reads it."""

    def decoding(data: bytes) -> Any:
        try:
            return decode(decoder, data)
        except Malformed as error:
            raise _Undecodable(error.message) from None

    return decoding
