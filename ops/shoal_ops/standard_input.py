"""Reads all of standard input for a command, up to a limit, so that a large file by mistake takes no memory, and Ctrl-C
ends a command that waits for it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress

import shoal
from shoal_ops import output


async def read_standard_input(what: str, limit_bytes: int) -> bytes:
    """Returns what standard input has. `what` names it. At a terminal it first says how the input ends. Raises
    TooLarge, having read no more than the limit and a byte."""
    if sys.stdin.isatty():
        output.remark(f"reads {what} from standard input: end it with Ctrl-D; Ctrl-C sends nothing")
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    done: asyncio.Future[bytes] = loop.create_future()

    def tell(data: bytes, error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(data)
        else:
            done.set_exception(error)

    def read() -> None:
        data, failure = bytearray(), None
        try:
            # Not sys.stdin itself: a thread that waits in it has its lock, which the end of the process needs.
            while len(data) <= limit_bytes and (part := os.read(number, limit_bytes + 1 - len(data))):
                data += part
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # The loop is closed: nothing waits any more.
            loop.call_soon_threadsafe(tell, bytes(data), failure)

    # A daemon: the end of the process does not wait for it, as it does for threads of a pool.
    threading.Thread(target=read, name="standard input", daemon=True).start()
    data = await done
    if len(data) > limit_bytes:
        text = f"{what} from standard input takes more than {limit_bytes} bytes, which is the limit"
        raise shoal.TooLarge(text, subject="standard input", limit=limit_bytes, value=len(data))
    return data
