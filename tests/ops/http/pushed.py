"""Takes what event streams hold, for tests of them in this process."""

from __future__ import annotations

import asyncio

import shoal
from shoal_ops.http.push import Stream
from tests.ops.http.conftest import WAIT_S


async def all_of(stream: Stream, count: int) -> list[int]:
    """Offsets of the next messages, acked."""
    found: list[int] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            assert not stream.ended
            batch = await stream.next(1)
            for message in batch:
                assert isinstance(message, shoal.Message)
                message.ack_nowait()
                found.append(message.offset)
            stream.written(batch)
    return found
