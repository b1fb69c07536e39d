"""Bounds what all sessions and watches write to the transport in one turn of the event loop.

To write costs time for each byte, and after a large publish a thousand sessions have something to write at once. If
all of them wrote in the same turn of the loop, that turn would be long; and since a session reads one frame a turn, and
gRPC hands over one new call a turn, others would wait. So what is beyond the bound is written in later turns,
connections in turn. Not here: what is written, and how long a client may take to read it (session_stream, writers).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable

from shoal_slice_node.adapters.limits import WRITE_COST_BYTES, WRITES_PER_TURN_BYTES


class WriteTurns:
    """Lets writers in, as many in a turn of the loop as `bytes_max` allows, and at least one. A write counts as its
    bytes and WRITE_COST_BYTES."""

    def __init__(self, bytes_max: int = WRITES_PER_TURN_BYTES) -> None:
        self._bytes_max = bytes_max
        self._free_bytes = bytes_max
        self._lines: OrderedDict[Hashable, deque[tuple[asyncio.Future[None], int]]] = OrderedDict()
        """The writers that wait and what they cost, by connection; the first connection is next. No line is
        empty. Where one waits, nothing is free."""
        self._next_turn: asyncio.Handle | None = None
        """Is set while anything waits, or not all of `bytes_max` is free."""

    async def turn(self, connection: Hashable, size_bytes: int) -> None:
        """Waits until `size_bytes` may be written. `size_bytes`: about what the transport will be given."""
        loop, cost_bytes = asyncio.get_running_loop(), WRITE_COST_BYTES + size_bytes
        if self._next_turn is None:
            self._next_turn = loop.call_soon(self._begin_turn)
        if self._free_bytes > 0:
            self._free_bytes -= cost_bytes
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._lines.setdefault(connection, deque()).append((turn, cost_bytes))
        await turn

    def _begin_turn(self) -> None:
        """Begins a turn of the loop, and lets in those that come next."""
        self._free_bytes, self._next_turn = self._bytes_max, None
        while self._lines and self._free_bytes > 0:
            connection, line = self._lines.popitem(last=False)
            turn, cost_bytes = line.popleft()
            if line:
                self._lines[connection] = line
            if not turn.done():  # Else its session has ended.
                self._free_bytes -= cost_bytes
                turn.set_result(None)
        if self._lines or self._free_bytes < self._bytes_max:
            self._next_turn = asyncio.get_running_loop().call_soon(self._begin_turn)
