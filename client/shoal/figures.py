"""Defines what `Admin` returns: figures of slices, the cluster, pages of lists. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shoal_contract.names import Name

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Holds a part of a list, read at several moments close together: items that come or go meanwhile may be
    missing."""

    items: tuple[Item, ...]
    """The items, in the list's order."""
    next: str
    """The `after` of the following page; "" on the last page. It may stand in a URL as it is."""


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """Describes a slice in the map."""

    slice: str
    """The slice's name."""
    address: str
    """host:port of its leader; "" while it has none."""
    epoch: int
    """The epoch in which its leader leads."""
    partitions: int
    """The number of partitions that the slice owns."""
    admin_address: str = ""
    """host:port of its administration; "" while it has none, or if it listens at `address`."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Describes the map as a redirector has it."""

    map_version: int
    """The version of the map."""
    age_ms: int
    """How long that redirector has not heard from etcd, in milliseconds; 0 while connected."""
    partitions: int
    """The number of partitions of the cluster."""
    slices: tuple[SliceInfo, ...]
    """All slices of the map."""


@dataclass(frozen=True, slots=True)
class JournalFigures:
    """Describes the journal of a slice: LSNs, segments, bytes."""

    lsn: int
    """The LSN of the last durable record."""
    applied_lsn: int
    """The LSN of the last record applied to the tables."""
    segments: int
    """The number of segment files."""
    bytes: int
    """The bytes written; segments are allocated ahead."""


@dataclass(frozen=True, slots=True)
class CheckpointFigures:
    """Describes the checkpoint of a slice, and the changes since then."""

    lsn: int
    """The LSN of the last record in the checkpoint."""
    age_s: float
    """How long ago the checkpoint was made, in seconds."""
    lag_records: int
    """The number of records applied since then, which would be replayed after a crash."""
    delta_rows: int
    """Rows in memory that no checkpoint has."""
    delta_bytes: int
    """The memory these rows take, about."""


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """Describes one share of the broker's memory budget."""

    name: str
    """What the share is for."""
    used_bytes: int
    """The bytes used now."""
    limit_bytes: int
    """The bytes that it may use."""


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """Describes the memory of a slice node's processes."""

    resident_bytes: int
    """The memory of the main process, in bytes."""
    checkpointer_resident_bytes: int
    """The memory of the checkpointer process, in bytes."""
    shares: tuple[MemoryShare, ...] = ()
    """The shares of the broker's memory budget."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the node began to lead, without replay."""

    declares: int
    """Queues declared, repeats included."""
    binds: int
    """Keys bound, repeats included."""
    unbinds: int
    """Keys unbound, repeats included."""
    publishes: int
    """Messages published, each counted once."""
    chunks: int
    """Chunks that the published messages came in."""
    deliveries: int
    """Messages given, once for each queue."""
    acks: int
    """Messages acked, once for each queue."""
    drops: int
    """Queues dropped."""
    purges: int
    """Queues purged."""
    refusals: int
    """Requests that were answered with an error."""
    queues_expired: int
    """Transient queues dropped because no session consumed them."""
    nacks: int = 0
    """Messages given back by a nack; what no program was given does not count."""
    ack_timeouts: int = 0
    """Messages not acked in time, and given again."""
    dead_nacked: int = 0
    """Messages delivered as often as their queue allows; came back last by a nack."""
    dead_timed_out: int = 0
    """The same, by an ack timeout."""
    dead_left: int = 0
    """The same, by the end of their session."""
    farewells_said: int = 0
    """Farewells published, or set out for another slice."""
    farewells_refused: int = 0
    """Farewells refused because those of the slice take as many bytes as they may."""


@dataclass(frozen=True, slots=True)
class SliceFigures:
    """Holds one slice's figures. Counts are exact, at the slice's own moment."""

    slice: str
    """The slice's name."""
    node: str
    """The name of the node that leads it."""
    epoch: int
    """The epoch in which that node leads."""
    map_version: int
    """The version of the map that the node has."""
    partitions: int
    """The number of partitions that the slice owns."""
    time_ms: int
    """The node's clock, milliseconds since 1970."""
    uptime_s: float
    """How long the node has led, in seconds."""
    queues: int
    """Queues with a part here; a queue bound on several slices counts on each."""
    keys: int
    """The number of keys that the slice owns and keeps."""
    bindings: int
    """Bindings in force; bindings of dropped queues count until they are reclaimed."""
    messages: int
    """Messages kept in logs, each counted once, however many queues still have to get it."""
    body_bytes: int
    """The bytes of bodies kept in logs, without headers."""
    sessions: int
    """The number of sessions that clients have open."""
    attached_queues: int
    """Queues that sessions consume or pull from now."""
    journal: JournalFigures
    """The figures of the journal."""
    checkpoint: CheckpointFigures
    """The figures of the checkpoint."""
    memory: MemoryFigures
    """The memory of the node's processes."""
    disk_bytes: int
    """The size of the store and of the journal's segments as allocated."""
    counters: Counters
    """Counts since the node began to lead."""
    trouble: str = ""
    """What is wrong now, as a sentence: the node takes no changes, or its checkpoints fail; "" if nothing is."""
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
    letters_waiting: int = 0
    """Dead letters for keys of other slices that are not known to be there yet; farewells do not count."""
    delayed_publishes: int = 0
    """Publishes that wait for their time, in chunks."""
    delayed_bytes: int = 0
    """The bytes of their chunks, with headers."""
    farewells: int = 0
    """Farewells kept, those on their way to other slices included."""
    farewell_bytes: int = 0
    """The bytes of their keys and messages."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """Describes one key of a list."""

    key: Name
    """The key's name."""
    queues: int
    """The number of queues bound to the key."""


@dataclass(frozen=True, slots=True)
class BindingEntry:
    """Describes one binding of a queue: `start` <= offsets < `end` (0: still bound) are for it; below `cursor` all is
    done."""

    key: Name
    """The key's name."""
    slice: str
    """The slice that owns the key."""
    start: int
    cursor: int
    end: int
    head: int
    """The next offset of the key."""
    messages: int
    """The backlog of the binding."""
    unacked: int = 0
    """So many of these messages consumers have and did not ack, or gave back with a delay that is not over."""
    full: bool = False
    """True if as much of this key is unacked as may be, or it was acked with gaps and the slice's memory of attached
    queues is full: no consumer of the queue gets more of it now."""
