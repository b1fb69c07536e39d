"""Bounds what open snapshots of the store cost its disk: ends the oldest one for which the file grows without end.

LMDB does not use pages again that an open snapshot reads. Beside churn, a client that read slowly, but steadily, made
the file grow for as long as it liked: 45 MiB a second were seen.

Belongs here: which snapshot ends, and when. Not here: the time that clients may take (shoal_runtime.client_patience).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.adapters.limits import SNAPSHOT_SPARED_S, SNAPSHOT_UNUSED_BYTES
from shoal_slice_node.adapters.store import StoreSize


@dataclass(eq=False, slots=True)
class OpenSnapshot:
    """Describes one open snapshot. `call`: what reads it. `began_s`: when it began, by the loop's clock. `error`: why
    it ends; None: it need not."""

    call: str
    began_s: float
    error: ResourceExhausted | None = None


class OpenSnapshots:
    """Keeps the open snapshots of one store, oldest first."""

    def __init__(self, size: Callable[[], StoreSize], next_checkpoint: Callable[[], Awaitable[None]]) -> None:
        """`size`: returns the store's. `next_checkpoint`: waits for the next one: nothing else changes the size."""
        self._size = size
        self._next_checkpoint = next_checkpoint
        self._open: list[OpenSnapshot] = []
        self._file_bytes = 0
        """The size of the file at the last look."""

    @contextmanager
    def opened(self, call: str) -> Iterator[OpenSnapshot]:
        """Counts a snapshot as open within the context."""
        if not self._open:
            self._file_bytes = self._size().file_bytes
        snapshot = OpenSnapshot(call, asyncio.get_running_loop().time())
        self._open.append(snapshot)
        try:
            yield snapshot
        finally:
            self._open.remove(snapshot)

    async def end_of(self, snapshot: OpenSnapshot) -> None:
        """Waits until the snapshot must end, and raises the reason, ResourceExhausted."""
        while snapshot.error is None:
            await self._next_checkpoint()
            self._look()
        raise snapshot.error

    def _look(self) -> None:
        """Decides whether the oldest snapshot must end: the file grew though much of it is unused, and the snapshot had
        its time. With the pages that this frees, the file need not grow, and the others go on."""
        size = self._size()
        grew, self._file_bytes = size.file_bytes > self._file_bytes, size.file_bytes
        if not (grew and self._open) or self._open[0].error is not None:
            return
        unused_bytes = size.file_bytes - size.tables_bytes
        limit_bytes = min(max(size.tables_bytes, SNAPSHOT_UNUSED_BYTES), size.disk_free_bytes)
        oldest, now_s = self._open[0], asyncio.get_running_loop().time()
        if unused_bytes <= limit_bytes or now_s - oldest.began_s < SNAPSHOT_SPARED_S:
            return
        oldest.error = ResourceExhausted(
            f"this {oldest.call} has kept its snapshot for {now_s - oldest.began_s:.0f} s, and changes replaced so"
            f" many pages that {unused_bytes} bytes of the store are unused, and yet it must grow; the limit is"
            f" {limit_bytes}: it ends. Ask again, for a newer snapshot: an export begins anew, a verification goes on"
            " with the chunks that were not answered. Read faster, from nearer, or when less changes",
            subject="bytes of the store kept for snapshots",
            limit=limit_bytes,
            value=unused_bytes,
        )
