"""Holds up looks at a fake slice, describes and peeks, and counts those under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal_contract.wire import slice_pb2 as wire


class FakeLooks:
    """Holds up looks. `ignores`: returns whether frames of a kind are not answered. `answering`: set while anything
    is."""

    def __init__(self, ignores: Callable[[str], bool], answering: asyncio.Event) -> None:
        self._ignores = ignores
        self._answering = answering
        self.slow_queues: set[bytes] = set()
        """Queues of which looks are not answered."""
        self.under_way = 0
        """How many looks wait for their answers; none whose caller has left, and none that asks for nothing, by which
        the library finds out whether the slice answers."""

    async def wait(self, look: wire.SessionRequest) -> None:
        """Returns once the look may be answered; never, if it is ignored or slow."""
        kind = look.WhichOneof("frame") or ""
        queues = [look.pull.queue] if kind == "pull" else list(look.describe.queues)
        counted = int(bool(queues or look.describe.keys))
        self.under_way += counted
        try:
            while self._ignores(kind) or self.slow_queues.intersection(queues):
                await asyncio.get_running_loop().create_future()
            await self._answering.wait()
        finally:
            self.under_way -= counted
