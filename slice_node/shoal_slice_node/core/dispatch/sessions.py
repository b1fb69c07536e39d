"""Keeps one client connection as dispatch sees it: its handles, what waits to be sent, how much may wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.limits import (
    HANDLE_BYTES,
    HANDLE_WIRE_BYTES_MAX,
    OWED_PER_SESSION_MAX,
    PARCEL_NUMBERS_BYTES_MAX,
    PARCEL_OVERHEAD_BYTES,
)

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Attachment, Feed


Slot = tuple[bytes, int, int, int, int]
"""Key id, first offset, end offset, times delivered before, and a count. The count is one more if a stream may not join
the last parcel, because that parcel leaves before one that the stream is in already."""


class Parcel:
    """Carries one chunk, or a part of one, to a session: once, for all of the session's queues.

    `number` grows in the order in which parcels leave; 0: it does not wait for a session.
    """

    __slots__ = ("chunk", "first", "handles", "key", "low", "number", "time_ms", "times", "to")

    def __init__(self, key: bytes, first: int, low: int, to: int, chunk: bytes, time_ms: int, times: int) -> None:
        self.key = key
        self.first = first
        self.low = low
        self.to = to
        self.chunk = chunk
        self.time_ms = time_ms
        self.times = times
        self.handles: list[int] = []
        self.number = 0

    @property
    def cost_bytes(self) -> int:
        """The memory that the parcel takes, about."""
        return len(self.chunk) + len(self.key) + PARCEL_OVERHEAD_BYTES + HANDLE_BYTES * len(self.handles)

    @property
    def wire_bytes(self) -> int:
        """The bytes that the parcel takes in a response, at most."""
        handles = HANDLE_WIRE_BYTES_MAX * len(self.handles)
        return len(self.chunk) + len(self.key) + handles + PARCEL_NUMBERS_BYTES_MAX

    def to_wire(self) -> wire.Delivery:
        return wire.Delivery(
            key=self.key,
            first=self.first,
            to=self.to,
            chunk=self.chunk,
            time_ms=self.time_ms,
            handles=self.handles,
            redelivered=self.times,
            low=self.low,
        )


class Session:
    """Keeps what one session consumes, and what waits for it.

    `under_way_bytes`: memory of what waits here or at the transport. When it reaches `room_bytes`, nothing more is
    added: the session lags. `room_bytes` is `window_bytes`, or less while the process is short of memory (shares.py).
    `owed`: the number of stretches of offsets that the session has and has not acked (streams.Out), over all queues.
    When it reaches `owed_max`, the session lags. `taken`: messages that the transport took and that are not counted
    yet, once for each queue.
    """

    __slots__ = (
        "_detached",
        "attachments",
        "awaited",
        "by_queue",
        "closed",
        "ended_by",
        "number",
        "owed",
        "owed_max",
        "pullers",
        "resets",
        "room_bytes",
        "stalled",
        "taken",
        "under_way_bytes",
        "waiting",
        "window_bytes",
    )

    def __init__(self, number: int, window_bytes: int) -> None:
        self.number = number
        self.window_bytes = self.room_bytes = window_bytes
        self.under_way_bytes = 0
        self.owed = 0
        self.owed_max = OWED_PER_SESSION_MAX
        self.taken = 0
        self.closed = False
        self.ended_by: ShoalError | None = None
        """Why the slice ends the session; its stream must be told."""
        self.attachments: dict[int, Attachment] = {}
        self.by_queue: dict[bytes, int] = {}
        """The handle of each queue name, attached or awaited: a session has each queue once."""
        self._detached: set[int] = set()
        """Detached handles that waiting parcels may still name."""
        self.awaited: dict[int, bytes] = {}
        """Handles of queues that have no part here yet."""
        self.pullers: dict[bytes, Attachment] = {}
        self.stalled: dict[bytes, Feed] = {}
        """Feeds that found no room here: they are served when there is room again."""
        self.waiting: dict[Slot, Parcel] = {}
        self.resets: list[int] = []
        """Handles of queues that were dropped here: the client is told before it gets anything of their next life."""

    @property
    def has_room(self) -> bool:
        return self.under_way_bytes < self.room_bytes and self.owed < self.owed_max

    @property
    def to_send(self) -> bool:
        return bool(self.waiting or self.resets)

    def queue_of(self, handle: int) -> bytes | None:
        """Returns the name that the handle stands for, attached or awaited; None: the handle is not in use."""
        attachment = self.attachments.get(handle)
        return self.awaited.get(handle) if attachment is None else attachment.feed.name

    def forget_handle(self, handle: int) -> None:
        """Notes that the handle was detached: nothing that waits here may name it when it is sent."""
        if self.waiting:
            self._detached.add(handle)

    def reuse_handle(self, handle: int) -> int:
        """Prepares the handle to mean another queue from now on: purges what waits, if it may still name the handle.
        Returns the bytes freed."""
        return self.purge() if handle in self._detached else 0

    def purge(self) -> int:
        """Takes detached handles out of what waits. Returns the bytes freed."""
        detached, self._detached = self._detached, set()
        if not detached:
            return 0
        freed = 0
        for slot, parcel in list(self.waiting.items()):
            if detached.isdisjoint(parcel.handles):
                continue
            before = parcel.cost_bytes
            parcel.handles = [handle for handle in parcel.handles if handle not in detached]
            if parcel.handles:
                freed += before - parcel.cost_bytes
            else:
                del self.waiting[slot]
                freed += before
        return freed

    def take(self, bytes_max: int) -> tuple[list[wire.Delivery], int]:
        """Returns deliveries to send now, oldest first: at least one, if any waits, and at most about `bytes_max` on
        the wire. Also returns the memory that they held; it counts as under way until they are sent."""
        deliveries: list[wire.Delivery] = []
        total = cost_bytes = 0
        waiting = self.waiting
        while waiting:
            slot = next(iter(waiting))
            parcel = waiting[slot]
            total += parcel.wire_bytes
            if deliveries and total > bytes_max:
                break
            del waiting[slot]
            cost_bytes += parcel.cost_bytes
            self.taken += (parcel.to - parcel.low) * len(parcel.handles)
            deliveries.append(parcel.to_wire())
        return deliveries, cost_bytes
