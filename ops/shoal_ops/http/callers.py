"""Notices callers that close their connection: HTTP servers go on with a request whose caller has left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive

from shoal_ops.http.limits import CALLER_LEFT_STATUS
from shoal_runtime.tasks import Tasks

Found = TypeVar("Found")


async def until_gone(receive: Receive) -> None:
    """Waits until the caller has closed the connection, or until reading its body, which is not used, has failed."""
    with contextlib.suppress(HTTPException):
        await _gone(receive)


async def while_wanted(request: Request, look: Coroutine[Any, Any, Found]) -> Found:
    """Returns what `look` finds, which changes nothing, or undoes it if it is cancelled. Ends it once the caller has
    closed the connection, and raises HTTPException then: nothing reads the answer."""
    async with Tasks("look") as tasks:
        looking = tasks.start("look", look, awaited=True)
        gone = tasks.start("gone", _gone(request.receive), awaited=True)
        await asyncio.wait([looking, gone], return_when=asyncio.FIRST_COMPLETED)
        if not looking.done() and gone.exception() is None:
            raise HTTPException(CALLER_LEFT_STATUS, "its caller has closed the connection")
        return await looking


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
