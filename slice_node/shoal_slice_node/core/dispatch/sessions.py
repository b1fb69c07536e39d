"""One client connection as dispatch sees it: its handles, what waits to be sent, how much may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal_contract.wire import slice_pb2 as wire

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Attachment, Feed


Slot = tuple[bytes, int, int, int, int]
"""Key id, first offset, end offset, times delivered before; and a count: one more where a stream may not join the last,
because that leaves before what the stream was given already."""


class Parcel:
    """One chunk, or a part of one, on its way to a session: once, for all of its queues.

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
    """`under_way_bytes`: chunks waiting here or at the transport. At `window_bytes` nothing more is added: it lags.
    `taken`: messages taken by the transport, once for each queue, not yet counted."""

    __slots__ = (
        "_detached",
        "attachments",
        "awaited",
        "closed",
        "number",
        "pullers",
        "stalled",
        "taken",
        "under_way_bytes",
        "waiting",
        "window_bytes",
    )

    def __init__(self, number: int, window_bytes: int) -> None:
        self.number = number
        self.window_bytes = window_bytes
        self.under_way_bytes = 0
        self.taken = 0
        self.closed = False
        self.attachments: dict[int, Attachment] = {}
        # Detached, and perhaps still named by what waits.
        self._detached: set[int] = set()
        # Handles of queues that have no part here yet.
        self.awaited: dict[int, bytes] = {}
        self.pullers: dict[bytes, Attachment] = {}
        self.stalled: dict[bytes, Feed] = {}
        self.waiting: dict[Slot, Parcel] = {}

    @property
    def has_room(self) -> bool:
        return self.under_way_bytes < self.window_bytes

    def forget_handle(self, handle: int) -> None:
        """It was detached: nothing that waits here may name it when it is sent."""
        if self.waiting:
            self._detached.add(handle)

    def reuse_handle(self, handle: int) -> None:
        """It means another queue from now on."""
        if handle in self._detached:
            self._purge()

    def _purge(self) -> None:
        detached, self._detached = self._detached, set()
        for slot, parcel in list(self.waiting.items()):
            if not detached.isdisjoint(parcel.handles):
                parcel.handles = [handle for handle in parcel.handles if handle not in detached]
                if not parcel.handles:
                    del self.waiting[slot]
                    self.under_way_bytes -= len(parcel.chunk)

    def take(self, bytes_max: int) -> tuple[list[wire.Delivery], int]:
        """Deliveries to send now, oldest first, and their chunk bytes: at least one, at most about `bytes_max`."""
        if self._detached:
            self._purge()
        deliveries: list[wire.Delivery] = []
        total = 0
        waiting = self.waiting
        while waiting:
            key = next(iter(waiting))
            parcel = waiting[key]
            queues = len(parcel.handles)
            size = len(parcel.chunk) + 5 * queues + 64
            if deliveries and total + size > bytes_max:
                break
            total += size
            del waiting[key]
            self.taken += (parcel.to - parcel.low) * queues
            deliveries.append(parcel.to_wire())
        return deliveries, sum(len(delivery.chunk) for delivery in deliveries)
