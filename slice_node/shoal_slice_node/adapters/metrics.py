"""Shows a slice's figures in Prometheus's text format. Each has one value, labelled with slice and node; there are none
for single keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from shoal_contract.wire.admin_pb2 import FiguresResponse
from shoal_contract.wire.common_pb2 import ErrorCode
from shoal_runtime import guard_metrics
from shoal_runtime.build_info import BuildInfo
from shoal_runtime.http.kept_text import KeptText
from shoal_slice_node.adapters.archiving import ArchiveFigures
from shoal_slice_node.adapters.figures import Figures

Found = TypeVar("Found")
Described = tuple[tuple[str, str, Callable[[Found], float]], ...]
Value = Callable[[FiguresResponse], float]
ArchiveValue = Callable[[ArchiveFigures], float]
PREFIX = "shoal_slice_node_"
_CODES = [code for code in ErrorCode.values() if code != ErrorCode.ERROR_CODE_UNSPECIFIED]

GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("epoch", "Epoch by which this node leads its slice.", lambda f: f.epoch),
    ("map_version", "Version of the partition map that it serves by.", lambda f: f.map_version),
    ("partitions", "Partitions owned.", lambda f: f.partitions),
    ("uptime_seconds", "Since it began to lead.", lambda f: f.uptime_ms / 1000),
    ("queues", "Queues with a part here.", lambda f: f.queues),
    ("keys", "Keys.", lambda f: f.keys),
    ("bindings", "Bindings in force.", lambda f: f.bindings),
    ("log_messages", "Messages kept in logs, each once.", lambda f: f.messages),
    ("log_body_bytes", "Bytes of their bodies, without headers.", lambda f: f.body_bytes),
    ("sessions", "Sessions of clients.", lambda f: f.sessions),
    ("attached_queues", "Queues that sessions consume or pull from.", lambda f: f.attached_queues),
    ("letters_waiting", "Dead letters not yet known to be on the slice of their key.", lambda f: f.letters_waiting),
    ("delayed_publishes", "Publishes that wait for their time, in chunks.", lambda f: f.delayed_publishes),
    ("delayed_bytes", "Bytes of their chunks, with headers.", lambda f: f.delayed_bytes),
    ("farewells", "Farewells kept, those on their way to other slices included.", lambda f: f.farewells),
    ("farewell_bytes", "Bytes of their keys and messages.", lambda f: f.farewell_bytes),
    ("journal_lsn", "LSN of the last durable record.", lambda f: f.journal.lsn),
    ("journal_applied_lsn", "LSN of the last applied record.", lambda f: f.journal.applied_lsn),
    ("journal_segments", "Segments kept.", lambda f: f.journal.segments),
    ("journal_written_bytes", "Bytes written in them.", lambda f: f.journal.bytes),
    ("checkpoint_lsn", "LSN of the last checkpoint.", lambda f: f.checkpoint.lsn),
    ("checkpoint_age_seconds", "Since it was committed.", lambda f: f.checkpoint.age_ms / 1000),
    ("checkpoint_lag_records", "Records applied since.", lambda f: f.checkpoint.lag_records),
    ("delta_rows", "Rows changed since the last freeze.", lambda f: f.checkpoint.delta_rows),
    ("delta_bytes", "Memory that they take, about.", lambda f: f.checkpoint.delta_bytes),
    ("resident_bytes", "Memory of the main process.", lambda f: f.resident_bytes),
    ("checkpointer_resident_bytes", "Memory of the checkpointer.", lambda f: f.checkpointer_resident_bytes),
    ("disk_bytes", "Store and journal.", lambda f: f.disk_bytes),
    ("disk_free_bytes", "Free on their file system.", lambda f: f.disk_free_bytes),
    ("loop_longest_step_ms", "Longest step of work in the last minute.", lambda f: f.loop_longest_step_us / 1000),
    ("lease_remaining_seconds", "How long it surely holds its lease.", lambda f: f.lease_remaining_ms / 1000),
)

NOW_GAUGES: tuple[tuple[str, str, Callable[[Figures], float]], ...] = (
    ("refuses_changes", "1 while it takes no changes; the log says why.", lambda f: bool(f.refuses)),
    ("checkpoint_failing", "1 while checkpoints fail; the log says why.", lambda f: bool(f.checkpoint_problem)),
    ("clock_behind_seconds", "How far its clock is behind the newest record.", lambda f: f.clock_behind_ms / 1000),
    ("watches", "Watches of members and counts that are open now.", lambda f: f.watches),
)

NOW_COUNTERS: tuple[tuple[str, str, Callable[[Figures], float]], ...] = (
    ("farewells_ended", "Farewells given up, as their key was full for an hour.", lambda f: f.farewells_ended),
)

COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("declares", "Queues declared.", lambda f: f.counters.declares),
    ("binds", "Keys bound.", lambda f: f.counters.binds),
    ("unbinds", "Keys unbound.", lambda f: f.counters.unbinds),
    ("publishes", "Messages published, each once.", lambda f: f.counters.publishes),
    ("chunks", "Chunks that they came in.", lambda f: f.counters.chunks),
    ("deliveries", "Messages given, once for each queue.", lambda f: f.counters.deliveries),
    ("acks", "Messages acked, once for each queue.", lambda f: f.counters.acks),
    ("nacks", "Messages given back by a nack; what no program was given does not count.", lambda f: f.counters.nacks),
    ("ack_timeouts", "Messages not acked in time, and given again.", lambda f: f.counters.ack_timeouts),
    ("drops", "Queues dropped.", lambda f: f.counters.drops),
    ("purges", "Queues purged.", lambda f: f.counters.purges),
    (
        "queues_expired",
        "Transient queues dropped because no session consumed them.",
        lambda f: f.counters.queues_expired,
    ),
    ("farewells_said", "Farewells published, or set out for another slice.", lambda f: f.counters.farewells_said),
    ("farewells_refused", "Farewells refused for want of room.", lambda f: f.counters.farewells_refused),
    ("silent_bindings", "Bindings found that nothing would have served: a defect.", lambda f: f.silent_bindings),
    ("checkpointer_restarts", "How often the checkpointer died.", lambda f: f.checkpointer_restarts),
)

ROLE = ("role", "1 for the process's role: waiting, opening, following, leading or closing.")
REFUSALS = ("refusals", "Requests refused, by error.")
DEAD_LETTERS = ("dead_letters", "Messages delivered as often as their queue allows, by how they came back last.")
CORE = ("shoal_core_info", "Form of the core that runs, compiled or python, as a label.")
MEMORY_USED = ("memory_used_bytes", "Of a share of the memory budget.")
MEMORY_LIMIT = ("memory_limit_bytes", "A share of the memory budget.")


ARCHIVE_GAUGES: tuple[tuple[str, str, ArchiveValue], ...] = (
    (
        "archive_waiting_segments",
        "Closed segments to be archived, or looked for there.",
        lambda f: f.waiting,
    ),
    ("archive_failing", "1 while the archive takes nothing; the log says why.", lambda f: bool(f.problem)),
)

ARCHIVE_COUNTERS: tuple[tuple[str, str, ArchiveValue], ...] = (
    ("archived_segments", "Segments put into the archive.", lambda f: f.archived),
    ("archive_failures", "Attempts that failed.", lambda f: f.failures),
)


class ShownRole(NamedTuple):
    """Names a node and its role."""

    slice: str
    node: str
    role: str


class SliceMetrics(Collector):
    """Collects values when Prometheus requests them. While the node does not serve, there are only its role and the
    values of the process."""

    def __init__(self) -> None:
        self.figures: Figures | None = None
        self.role: ShownRole | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        BuildInfo("slice_node", self._registry)
        self.text = KeptText(lambda: generate_latest(self._registry)).now

    def collect(self) -> Iterator[Metric]:
        if self.role is not None:
            role = GaugeMetricFamily(PREFIX + ROLE[0], ROLE[1], labels=("slice", "node", "role"))
            role.add_metric(self.role, 1)
            yield role
        if self.figures is None:
            return
        found = self.figures.now()
        labels = (found.slice, found.node)
        yield from _metrics(labels, found, GAUGES, COUNTERS)
        yield from _metrics(labels, self.figures, NOW_GAUGES, NOW_COUNTERS)
        yield from _metrics(labels, self.figures.guard, guard_metrics.GAUGES, guard_metrics.COUNTERS)
        yield from _shares(labels, found)
        yield _refusals(labels, found)
        yield _dead_letters(labels, found)
        core = GaugeMetricFamily(CORE[0], CORE[1], labels=("slice", "node", "core"))
        core.add_metric((*labels, found.core), 1)
        yield core
        archive = self.figures.archive
        if archive is not None:
            yield from _metrics(labels, archive, ARCHIVE_GAUGES, ARCHIVE_COUNTERS)


def _metrics(
    labels: tuple[str, str], found: Found, gauges: Described[Found], counters: Described[Found]
) -> Iterator[Metric]:
    for name, text, value in gauges:
        gauge = GaugeMetricFamily(PREFIX + name, text, labels=("slice", "node"))
        gauge.add_metric(labels, value(found))
        yield gauge
    for name, text, value in counters:
        counter = CounterMetricFamily(PREFIX + name, text, labels=("slice", "node"))
        counter.add_metric(labels, value(found))
        yield counter


def _shares(labels: tuple[str, str], found: FiguresResponse) -> Iterator[Metric]:
    used = GaugeMetricFamily(PREFIX + MEMORY_USED[0], MEMORY_USED[1], labels=("slice", "node", "share"))
    limit = GaugeMetricFamily(PREFIX + MEMORY_LIMIT[0], MEMORY_LIMIT[1], labels=("slice", "node", "share"))
    for share in found.memory:
        used.add_metric((*labels, share.name), share.used_bytes)
        limit.add_metric((*labels, share.name), share.limit_bytes)
    yield used
    yield limit


def _refusals(labels: tuple[str, str], found: FiguresResponse) -> Metric:
    """Returns the refusals by error code. Every code is there from the start, so that each rate begins at 0."""
    counts = dict.fromkeys(_CODES, 0) | {entry.code: entry.count for entry in found.refused}
    refusals = CounterMetricFamily(PREFIX + REFUSALS[0], REFUSALS[1], labels=("slice", "node", "error"))
    for code, count in counts.items():
        name = ErrorCode.Name(code).removeprefix("ERROR_CODE_").lower()
        refusals.add_metric((*labels, name), count)
    return refusals


def _dead_letters(labels: tuple[str, str], found: FiguresResponse) -> Metric:
    dead = CounterMetricFamily(PREFIX + DEAD_LETTERS[0], DEAD_LETTERS[1], labels=("slice", "node", "reason"))
    counters = found.counters
    for reason, count in (
        ("nack", counters.dead_nacked),
        ("timeout", counters.dead_timed_out),
        ("left", counters.dead_left),
    ):
        dead.add_metric((*labels, reason), count)
    return dead
