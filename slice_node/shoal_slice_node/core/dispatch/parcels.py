"""Carries chunks to sessions: a parcel each, for all of a session's queues."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Set
from typing import NamedTuple

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.limits import (
    HANDLE_BYTES,
    HANDLE_WIRE_BYTES_MAX,
    PARCEL_NUMBERS_BYTES_MAX,
    PARCEL_OVERHEAD_BYTES,
)

Slot = tuple[bytes, int, int, int, int, int]
"""Key id, first offset, end offset, times delivered before, why it is a gap (0: it is none), and a count. The count is
one more if a stream may not join the last parcel, because that parcel leaves before one that the stream is in already.
"""


def parcel_bytes(chunk: bytes, key: bytes) -> int:
    """Returns the memory that a parcel takes besides its handles, about."""
    return len(chunk) + len(key) + PARCEL_OVERHEAD_BYTES


class Parcel:
    """Carries one chunk, or a part of one, to a session: once, for all of the session's queues. `is_live`: it is a live
    chunk, without offsets. `gap`: it is a gap, for this reason, and its handles do not get these messages (gaps.py); 0:
    it is none.

    `number` grows in the order in which parcels leave; 0: it does not wait for a session. `_ordered`: so many of the
    first handles ascend.
    """

    __slots__ = (
        "_ordered",
        "chunk",
        "expires_ms",
        "first",
        "gap",
        "handles",
        "is_live",
        "key",
        "low",
        "number",
        "time_ms",
        "times",
        "to",
    )

    def __init__(
        self,
        key: bytes,
        first: int,
        low: int,
        to: int,
        chunk: bytes,
        time_ms: int,
        times: int,
        number: int = 0,
        expires_ms: int = 0,
        gap: int = 0,
        is_live: bool = False,
    ) -> None:
        self.gap = gap
        self.is_live = is_live
        self.expires_ms = expires_ms
        self.key = key
        self.first = first
        self.low = low
        self.to = to
        self.chunk = chunk
        self.time_ms = time_ms
        self.times = times
        self.handles: list[int] = []
        self.number = number
        self._ordered = 0

    @property
    def cost_bytes(self) -> int:
        """Returns the memory that the parcel takes, about."""
        return parcel_bytes(self.chunk, self.key) + HANDLE_BYTES * len(self.handles)

    @property
    def wire_bytes(self) -> int:
        """Returns the bytes that the parcel takes in a response, at most."""
        handles = HANDLE_WIRE_BYTES_MAX * len(self.handles)
        return len(self.chunk) + len(self.key) + handles + PARCEL_NUMBERS_BYTES_MAX

    def add_handle(self, handle: int) -> None:
        """Lets another of the session's queues get the chunk."""
        self.handles.append(handle)

    def drop_handles(self, dropped: Set[int]) -> None:
        """Takes these handles out."""
        self.handles = [handle for handle in self.handles if handle not in dropped]
        self._ordered = 0

    def brings_to(self, handle: int) -> bool:
        """Returns whether the queue of this handle gets the chunk. A parcel may have thousands of handles: they are
        sorted, unless they are."""
        return self._place(handle) is not None

    def drop_handle(self, handle: int) -> None:
        """Takes one handle out."""
        place = self._place(handle)
        if place is not None:
            del self.handles[place]
            self._ordered -= 1

    def _place(self, handle: int) -> int | None:
        handles = self.handles
        if self._ordered != len(handles):
            handles.sort()
            self._ordered = len(handles)
        place = bisect_left(handles, handle)
        return place if place < len(handles) and handles[place] == handle else None

    def drop_chunk(self) -> None:
        """Frees the chunk of a parcel that will not be sent."""
        self.chunk = b""

    @property
    def is_gap(self) -> bool:
        return self.gap != 0

    @property
    def replaces_messages(self) -> bool:
        """Returns whether it is a gap in the place of messages that were given, and expired before they left."""
        return self.is_gap and self.expires_ms > 0

    @property
    def is_owed(self) -> bool:
        """Returns whether its handles have its messages out until they are acked, or its gap until they are told."""
        return not self.is_live

    def expired(self) -> Parcel:
        """Returns the gap that is told in the place of the messages."""
        at = self.key, self.low, self.low, self.to
        gap = Parcel(*at, b"", 0, 0, expires_ms=self.expires_ms, gap=wire.GAP_REASON_EXPIRED)
        gap.handles = self.handles
        return gap

    def to_gap(self) -> wire.Gap:
        """Returns the gap that it is."""
        why = wire.GapReason.ValueType(self.gap)
        return wire.Gap(key=self.key, first=self.first, to=self.to, why=why, handles=self.handles)

    def to_wire(self, nacks_taken: int = 0) -> wire.Delivery:
        delivery = wire.Delivery(
            key=self.key,
            first=self.first,
            to=self.to,
            chunk=self.chunk,
            time_ms=self.time_ms,
            handles=self.handles,
            low=self.low,
        )
        if self.times:  # These are seldom set, and to set a field takes time even if it is zero.
            delivery.redelivered = self.times
        if self.is_live:
            delivery.live = True
        if self.expires_ms:
            delivery.expires_ms = self.expires_ms
        if nacks_taken:
            delivery.nacks_taken = nacks_taken
        return delivery


class Taken(NamedTuple):
    """Holds what a session takes to send. `cost_bytes`: the memory that it held; it counts as under way until it is
    sent."""

    deliveries: list[wire.Delivery]
    gaps: list[wire.Gap]
    cost_bytes: int
    told: list[tuple[bytes, Parcel]]
    """The gaps, each with its key id; also those in the place of what has expired."""
    freed_bytes: int = 0
    """The memory of what is not sent, as its handles were detached."""
