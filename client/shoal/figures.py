"""What `Admin` answers with: figures of slices, the cluster, pages of lists. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shoal_contract.names import Name

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """A part of a list. It is as of several moments close together: what comes or goes meanwhile may be missing."""

    items: tuple[Item, ...]
    next: str
    """The `after` of the following page; "" after the last. Fit for a URL as it is."""


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """A slice in the map."""

    slice: str
    address: str
    """host:port of its leader; "" while it has none."""
    epoch: int
    partitions: int
    """How many it owns."""
    admin_address: str = ""
    """host:port of its administration; "" while it has none, or where that is at `address`."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The map as a redirector has it."""

    map_version: int
    age_ms: int
    """How long that redirector has not heard from etcd; 0 while connected."""
    partitions: int
    slices: tuple[SliceInfo, ...]


@dataclass(frozen=True, slots=True)
class JournalFigures:
    """The journal of a slice: LSNs, segments, bytes."""

    lsn: int
    """Of the last durable record."""
    applied_lsn: int
    segments: int
    bytes: int
    """Written; segments are allocated ahead."""


@dataclass(frozen=True, slots=True)
class CheckpointFigures:
    """The checkpoint of a slice, and what changed since."""

    lsn: int
    age_s: float
    lag_records: int
    """Records applied since: what a crash would replay."""
    delta_rows: int
    """Rows in memory that no checkpoint has."""
    delta_bytes: int
    """The memory they take, about."""


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """One share of the broker's memory budget."""

    name: str
    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """Memory of a slice node's processes."""

    resident_bytes: int
    """Of the broker process."""
    checkpointer_resident_bytes: int
    shares: tuple[MemoryShare, ...] = ()
    """Of the broker's budget, what may take how much."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the node began to serve; replay does not count."""

    declares: int
    binds: int
    """Keys bound, repeats included."""
    unbinds: int
    publishes: int
    """Messages, each once."""
    chunks: int
    """What they came in."""
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
    """Owned by the slice."""
    time_ms: int
    """The node's clock, milliseconds since 1970."""
    uptime_s: float
    queues: int
    """With a part here: a queue bound on several slices counts on each."""
    keys: int
    bindings: int
    """Live ones; those of dropped queues count until they are reclaimed."""
    messages: int
    """Kept in logs, each once however many queues still have to get it."""
    body_bytes: int
    sessions: int
    attached_queues: int
    """Queues that sessions consume or pull from now."""
    journal: JournalFigures
    checkpoint: CheckpointFigures
    memory: MemoryFigures
    disk_bytes: int
    """The store, and the journal's segments as allocated."""
    counters: Counters
    trouble: str = ""
    """What keeps changes from being taken now, as a sentence; "": nothing."""
    version: str = ""
    """Of the program that the node runs."""
    incarnation: str = ""
    """The life of the slice's data, as its record in etcd names it."""
    loop_longest_step_us: int = 0
    """The longest that one step of work held the node's event loop, in the last minute."""
    lease_remaining_ms: int = 0
    """How long the node surely holds its lease; it answers nothing without one."""
    disk_free_bytes: int = 0
    """On the file system of journal and store."""
    silent_bindings: int = 0
    """Bindings with backlog and a consumer with room that are neither served nor in line: 0, or a defect."""
    refused: dict[str, int] = field(default_factory=dict)
    """Answers that were errors, by code, as NO_SUCH_QUEUE."""
    checkpointer_restarts: int = 0
    """How often the checkpointer died and was started again."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One key of a list."""

    key: Name
    queues: int
    """How many are bound."""


@dataclass(frozen=True, slots=True)
class BindingEntry:
    """One key of a queue: `start` <= offsets < `end` (0: still bound) are for the queue; below `cursor` all is done."""

    key: Name
    slice: str
    start: int
    cursor: int
    end: int
    head: int
    """The next offset of the key."""
    messages: int
    """Backlog."""
