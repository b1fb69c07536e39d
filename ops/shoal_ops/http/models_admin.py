"""The forms of what the administration answers, as OpenAPI shows them: cluster, slices, partitions, places, pages of
names.

Belongs here: forms and their examples. Not here: requests about queues and messages (models.py).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from shoal_ops.http.models import Binding


def shows(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


_RATES = {"binds": 260.0, "unbinds": 255.0, "publishes": 8.6, "deliveries": 41.0, "acks": 40.0}
_SLICE = {"slice": "s01", "address": "127.0.0.1:7410", "epoch": 1, "partitions": 1366}
_FIGURES = {
    "uptime_s": 86400.0,
    "queues": 68000,
    "keys": 131953,
    "bindings": 629637,
    "messages": 1200,
    "body_bytes": 150000,
    "sessions": 40,
    "attached_queues": 3000,
    "journal_lsn": 1000000,
    "journal_bytes": 50000000,
    "checkpoint_age_s": 21.0,
    "checkpoint_lag": 1500,
    "resident_bytes": 120000000,
    "disk_bytes": 400000000,
}


class Rates(BaseModel):
    """Gives rates per second, over about the last two seconds."""

    binds: float
    unbinds: float
    publishes: float
    deliveries: float
    acks: float


class Glance(BaseModel):
    """Gives the figures of a slice that the page shows; all figures of the slice are at /v1/slices/{slice}."""

    uptime_s: float
    queues: int
    keys: int
    bindings: int
    messages: Annotated[int, Field(description="kept in logs, each once")]
    body_bytes: int
    sessions: int
    attached_queues: int
    journal_lsn: int
    journal_bytes: int
    checkpoint_age_s: float
    checkpoint_lag: Annotated[int, Field(description="records that a crash would replay")]
    resident_bytes: int
    disk_bytes: int


Trouble = Annotated[
    str,
    Field(description="what is wrong with it while it serves, as that it takes no changes on a full disk; empty: none"),
]


class SliceGlance(BaseModel):
    slice: str
    address: str
    epoch: int
    partitions: int
    state: Literal["serving", "silent"]
    problem: Annotated[str, Field(description="why it is silent")]
    trouble: Trouble
    figures: Glance | None = None
    rates: Rates
    history: Annotated[
        dict[str, list[float | None]],
        Field(description="publishes, deliveries, changes, messages and resident_bytes at each of times_ms"),
    ]


class Overview(BaseModel):
    model_config = shows(
        time_ms=1_790_000_000_000,
        map_version=1,
        map_age_ms=0,
        partitions=4096,
        problem="",
        every_s=2.0,
        times_ms=[1_789_999_998_000, 1_790_000_000_000],
        rates=_RATES,
        slices=[
            {
                **_SLICE,
                "state": "serving",
                "problem": "",
                "trouble": "",
                "figures": _FIGURES,
                "rates": _RATES,
                "history": {"publishes": [8.0, 8.6]},
            }
        ],
    )
    time_ms: int
    map_version: int
    map_age_ms: Annotated[int, Field(description="how long the redirector has not heard from etcd; 0: connected")]
    partitions: int
    problem: Annotated[str, Field(description="why no redirector answered")]
    every_s: Annotated[float, Field(description="pace of the samples")]
    times_ms: list[int]
    rates: Rates
    slices: list[SliceGlance]


class SliceState(BaseModel):
    slice: str
    address: Annotated[str, Field(description="host:port of its leader; empty while it has none")]
    epoch: int
    partitions: int
    node: str
    state: Literal["serving", "silent"]
    problem: Annotated[str, Field(description="why it is silent")]
    trouble: Trouble


class Cluster(BaseModel):
    model_config = shows(
        map_version=1,
        map_age_ms=0,
        partitions=4096,
        healthy=True,
        slices=[{**_SLICE, "node": "n01", "state": "serving", "problem": "", "trouble": ""}],
    )
    map_version: int
    map_age_ms: int
    partitions: int
    healthy: Annotated[bool, Field(description="a redirector and every slice answer, and no slice has trouble")]
    slices: list[SliceState]


class PartitionRun(BaseModel):
    first: int
    last: int
    slice: str


class Partitions(BaseModel):
    model_config = shows(partitions=4096, runs=[{"first": 0, "last": 1365, "slice": "s01"}])
    partitions: int
    runs: Annotated[list[PartitionRun], Field(description="neighbours of one owner together")]


class Place(BaseModel):
    key: str
    key_encoded: str | None = None
    partition: int
    slice: str


class Places(BaseModel):
    model_config = shows(keys=[{"key": "group-7", "partition": 911, "slice": "s01"}])
    keys: list[Place]


class QueueEntry(BaseModel):
    queue: str
    queue_encoded: str | None = None


class QueuePage(BaseModel):
    model_config = shows(queues=[{"queue": "inbox-anna"}, {"queue": "inbox-ben"}], next="inbox-ben")
    queues: list[QueueEntry]
    next: Annotated[str, Field(description="the next page's `after`; empty: this is the last")]


class KeyEntry(BaseModel):
    key: str
    key_encoded: str | None = None
    queues: int


class KeyPage(BaseModel):
    model_config = shows(keys=[{"key": "group-7", "queues": 3}], next="")
    keys: list[KeyEntry]
    next: str


class BindingPage(BaseModel):
    model_config = shows(
        bindings=[
            {"key": "group-7", "slice": "s01", "start": 1, "cursor": 42, "end": 0, "head": 43, "messages": 1}
            | {"unacked": 1, "full": False},
        ],
        next="",
    )
    bindings: list[Binding]
    next: str


class Health(BaseModel):
    model_config = shows(healthy=True)
    healthy: bool


class Ready(BaseModel):
    model_config = shows(ready=True)
    ready: bool


FIGURES_EXAMPLE: Final = {
    "slice": "s01",
    "node": "n01",
    "epoch": 1,
    "map_version": 1,
    "partitions": 1366,
    "time_ms": 1_790_000_000_000,
    "uptime_s": 86400.0,
    "queues": 68000,
    "keys": 131953,
    "bindings": 629637,
    "messages": 1200,
    "body_bytes": 150000,
    "sessions": 40,
    "attached_queues": 3000,
    "journal": {"lsn": 1000000, "applied_lsn": 1000000, "segments": 2, "bytes": 50000000},
    "checkpoint": {"lsn": 998500, "age_s": 21.0, "lag_records": 1500, "delta_rows": 9000, "delta_bytes": 900000},
    "memory": {
        "resident_bytes": 90000000,
        "checkpointer_resident_bytes": 30000000,
        "shares": [{"name": "input", "used_bytes": 100000, "limit_bytes": 67108864}],
    },
    "disk_bytes": 400000000,
    "counters": {
        "declares": 68000,
        "binds": 700000,
        "unbinds": 70363,
        "publishes": 743000,
        "chunks": 743000,
        "deliveries": 3500000,
        "acks": 3500000,
        "drops": 0,
        "purges": 0,
        "refusals": 12,
        "queues_expired": 0,
        "nacks": 40,
        "ack_timeouts": 3,
        "dead_nacked": 2,
        "dead_timed_out": 0,
        "dead_left": 0,
        "farewells_said": 150,
        "farewells_refused": 0,
    },
    "trouble": "",
    "version": "0.1.0",
    "incarnation": "5f0c3a9d1e2b4c68",
    "loop_longest_step_us": 3200,
    "lease_remaining_ms": 7400,
    "disk_free_bytes": 180000000000,
    "silent_bindings": 0,
    "refused": {"NO_SUCH_QUEUE": 12},
    "checkpointer_restarts": 0,
    "letters_waiting": 0,
    "delayed_publishes": 5,
    "delayed_bytes": 1000,
    "farewells": 900,
    "farewell_bytes": 50000,
}
"""An example of `shoal.SliceFigures`, whose form the client defines."""
