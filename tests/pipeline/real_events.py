"""Recorded membership and chat events of tests/data as an archive with their own times, and counted in plain Python.

The counts here share nothing with the pipeline: sets of members, a loop over events.
"""

from __future__ import annotations

import gzip
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from zlib import crc32

from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire

from .archives import SliceArchive, binds, declares, publishes, unbinds

DATA = Path(__file__).parents[1] / "data"
CHURN = DATA / "rust-team.churn.tsv.gz"
PARTITIONS = 64
SLICES = ("s01", "s02")


@dataclass(frozen=True, slots=True)
class Event:
    """`joins` None: it only says something."""

    at_ms: int
    joins: bool | None
    group: bytes
    user: bytes
    says: bytes | None = None


def churn_events(path: Path = CHURN) -> Iterator[Event]:
    """In file order, which is the order of time."""
    with gzip.open(path, "rb") as lines:
        for line in lines:
            seconds, action, group, user = line.rstrip(b"\n").split(b"\t")
            yield Event(int(seconds) * 1000, action == b"join", group, user, line.rstrip(b"\n").replace(b"\t", b" "))


def channel_events() -> Iterator[Event]:
    """All at time 0: the log has no dates. tests/data/README.md tells how it is read."""
    with gzip.open(DATA / "linux-channel.events.tsv.gz", "rb") as lines:
        for line in lines:
            _, _, _, group, kind, user, text = line.rstrip(b"\r\n").split(b"\t", 6)
            if kind == b"msg":
                yield Event(0, None, group, user, text)
            elif kind == b"nick":
                yield Event(0, True, group, text)
                yield Event(0, False, group, user)
            elif kind != b"mode":
                yield Event(0, kind == b"join", group, user)


def slice_of(group: bytes) -> int:
    """Partitions are dealt out in turn."""
    return crc32(group) % PARTITIONS % len(SLICES)


def write_archive(root: Path, events: list[Event], segment_records: int = 700) -> None:
    """As clients would have sent them: each user is declared on a slice before the first bind there; a message to the
    group follows each change. Some frames are sent twice, some requests are wrong: they change nothing."""
    archives = [SliceArchive(root, name) for name in SLICES]
    declared: set[tuple[int, bytes]] = set()
    for number, archive in enumerate(archives):
        archive.own(events[0].at_ms, PARTITIONS, range(number, PARTITIONS, len(SLICES)))
    for number, event in enumerate(events, 1):
        archive = archives[where := slice_of(event.group)]
        steps: list[wire.Step] = []
        if (where, event.user) not in declared:
            declared.add((where, event.user))
            archive.change(event.at_ms, binds(event.user, event.group))  # refused: not declared yet
            steps.append(declares(event.user))
        steps.append(binds(event.user, event.group) if event.joins else unbinds(event.user, event.group))
        steps.append(publishes(event.group, encode_chunk([event.says or b""])))
        for _ in range(2 if number % 10 == 0 else 1):
            archive.change(event.at_ms, *steps, producer=b"%016d" % where, sequence=number)
        if number % 50 == 0:  # refused: the other slice's key, and a reserved one
            archives[1 - where].change(event.at_ms, declares(event.user), binds(event.user, event.group))
            declared.add((1 - where, event.user))
            archive.change(event.at_ms, binds(event.user, b"another " + event.group, b"@" + event.user))
        if archive.next_lsn % segment_records == 0:
            archive.cut()
    for archive in archives:
        archive.cut()


@dataclass(slots=True)
class Counted:
    """Of one interval: stocks at its end, flows in it."""

    online_queues: int = 0
    keys: int = 0
    memberships: int = 0
    size_mean: float = 0.0
    size_stddev: float = 0.0
    size_max: int = 0
    binds: int = 0
    unbinds: int = 0
    keys_begun: int = 0
    keys_ended: int = 0
    messages: int = 0
    message_bytes: int = 0


@dataclass(slots=True)
class Count:
    """Plain Python's census. `sizes`: at the end, by key."""

    intervals: dict[int, Counted] = field(default_factory=dict)
    members: dict[bytes, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    members_max: Counter[bytes] = field(default_factory=Counter)
    churn: Counter[bytes] = field(default_factory=Counter)
    messages: Counter[bytes] = field(default_factory=Counter)
    users: set[bytes] = field(default_factory=set)

    def take(self, event: Event, interval: int) -> None:
        counted = self.intervals.setdefault(interval, Counted())
        if event.joins is not None:
            self.change(event, counted)
        if event.says is not None:
            self.messages[event.group] += 1
            counted.messages += 1
            counted.message_bytes += len(event.says)

    def change(self, event: Event, counted: Counted) -> None:
        self.users.add(event.user)
        members = self.members[event.group]
        if event.joins and event.user not in members:
            members.add(event.user)
            counted.binds += 1
            counted.keys_begun += len(members) == 1
            self.churn[event.group] += 1
        elif not event.joins and event.user in members:
            members.remove(event.user)
            counted.unbinds += 1
            counted.keys_ended += not members
            self.churn[event.group] += 1
        self.members_max[event.group] = max(self.members_max[event.group], len(members))

    def end(self, interval: int) -> None:
        counted = self.intervals.setdefault(interval, Counted())
        sizes = [len(members) for members in self.members.values() if members]
        counted.online_queues, counted.keys, counted.memberships = len(self.users), len(sizes), sum(sizes)
        if sizes:
            counted.size_max = max(sizes)
            counted.size_mean = mean = sum(sizes) / len(sizes)
            counted.size_stddev = sqrt(sum((size - mean) ** 2 for size in sizes) / len(sizes))


def count(events: list[Event], begins_ms: Sequence[int]) -> Count:
    """`begins_ms`: of the intervals; what is before the first counts into it. Users stay online from their first event
    on."""
    found = Count()
    last = 0
    for event in events:
        interval = max(0, bisect_right(begins_ms, event.at_ms) - 1)
        while last < interval:
            found.end(last)
            last += 1
        found.take(event, interval)
    found.end(last)
    return found
