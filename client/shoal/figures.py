"""Defines what `Admin` returns: figures of slices, the cluster, pages of lists. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shoal_contract.names import Name

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """A part of a list, read at several moments close together: items that come or go meanwhile may be missing."""

    items: tuple[Item, ...]
    next: str
    """The `after` of the following page; "" on the last page. It may stand in a URL as it is."""


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """A slice in the map."""

    slice: str
    address: str
    """host:port of its leader; "" while it has none."""
    epoch: int
    partitions: int
    """The number of partitions that the slice owns."""
    admin_address: str = ""
    """host:port of its administration; "" while it has none, or if it listens at `address`."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The map as a redirector has it."""

    map_version: int
    age_ms: int
    """How long that redirector has not heard from etcd, in milliseconds; 0 while connected."""
    partitions: int
    slices: tuple[SliceInfo, ...]


@dataclass(frozen=True, slots=True)
class JournalFigures:
    """The journal of a slice: LSNs, segments, bytes."""

    lsn: int
    """The LSN of the last durable record."""
    applied_lsn: int
    segments: int
    bytes: int
    """The bytes written; segments are allocated ahead."""


@dataclass(frozen=True, slots=True)
class CheckpointFigures:
    """The checkpoint of a slice, and the changes since then."""

    lsn: int
    age_s: float
    lag_records: int
    """The number of records applied since then, which would be replayed after a crash."""
    delta_rows: int
    """Rows in memory that no checkpoint has."""
    delta_bytes: int
    """The memory these rows take, about."""


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """One share of the broker's memory budget."""

    name: str
    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """The memory of a slice node's processes."""

    resident_bytes: int
    """The memory of the broker process, in bytes."""
    checkpointer_resident_bytes: int
    shares: tuple[MemoryShare, ...] = ()
    """The shares of the broker's memory budget."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the node began to serve, without replay."""

    declares: int
    binds: int
    """Keys bound, repeats included."""
    unbinds: int
    publishes: int
    """Messages published, each counted once."""
    chunks: int
    """Chunks that the published messages came in."""
    deliveries: int
    """Messages given, once for each queue."""
    acks: int
    """Messages acked, once for each queue."""
    drops: int
    purges: int
    refusals: int


@dataclass(frozen=True, slots=True)
class SliceFigures:
    """One slice's figures. Counts are exact, at the slice's own moment."""

    slice: str
    node: str
    epoch: int
    map_version: int
    partitions: int
    """The number of partitions that the slice owns."""
    time_ms: int
    """The node's clock, milliseconds since 1970."""
    uptime_s: float
    queues: int
    """Queues with a part here; a queue bound on several slices counts on each."""
    keys: int
    bindings: int
    """Live bindings; bindings of dropped queues count until they are reclaimed."""
    messages: int
    """Messages kept in logs, each counted once, however many queues still have to get it."""
    body_bytes: int
    sessions: int
    attached_queues: int
    """Queues that sessions consume or pull from now."""
    journal: JournalFigures
    checkpoint: CheckpointFigures
    memory: MemoryFigures
    disk_bytes: int
    """The size of the store and of the journal's segments as allocated."""
    counters: Counters
    trouble: str = ""
    """Why the node takes no changes now, as a sentence; "" if it takes them."""
    version: str = ""
    """The version of the program that the node runs."""
    incarnation: str = ""
    """The life of the slice's data, as its record in etcd names it."""
    loop_longest_step_us: int = 0
    """The longest time that one step of work held the node's event loop in the last minute, in microseconds."""
    lease_remaining_ms: int = 0
    """How long the node surely holds its lease, in milliseconds; without a lease it answers nothing."""
    disk_free_bytes: int = 0
    """The free bytes on the file system of journal and store."""
    silent_bindings: int = 0
    """Bindings with backlog and a consumer with room that are neither served nor in line; above 0 is a defect."""
    refused: dict[str, int] = field(default_factory=dict)
    """Error code, as NO_SUCH_QUEUE -> number of answers with this error."""
    checkpointer_restarts: int = 0
    """How often the checkpointer died and was started again."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One key of a list."""

    key: Name
    queues: int
    """The number of queues bound to the key."""


@dataclass(frozen=True, slots=True)
class BindingEntry:
    """One binding of a queue: `start` <= offsets < `end` (0: still bound) are for it; below `cursor` all is done."""

    key: Name
    slice: str
    start: int
    cursor: int
    end: int
    head: int
    """The next offset of the key."""
    messages: int
    """The backlog of the binding."""
