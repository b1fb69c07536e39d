"""The results of a census: plain data, from which Parquet and the report are made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SliceSpan:
    """Says what an archive has of one slice: its records' times and first LSN. If that is above 1, the beginning is
    missing."""

    slice: str
    first_ms: int
    last_ms: int
    first_lsn: int


@dataclass(frozen=True, slots=True)
class IntervalFigures:
    """Holds the figures of one interval. Stocks (online_queues to size_max) are as of its end; the others count what
    happened in it. `seconds`: how much of it the archive covers. Sizes are of keys in use; the deviation is of all of
    them, not of a sample."""

    start_ms: int
    seconds: float
    online_queues: int
    keys: int
    memberships: int
    size_mean: float
    size_stddev: float
    size_max: int
    binds: int
    unbinds: int
    keys_begun: int
    keys_ended: int
    messages: int
    message_bytes: int

    @property
    def groups_per_resident(self) -> float:
        return self.memberships / self.online_queues if self.online_queues else 0.0

    @property
    def key_churn_per_s(self) -> float:
        return (self.keys_begun + self.keys_ended) / self.seconds

    @property
    def membership_churn_per_s(self) -> float:
        return (self.binds + self.unbinds) / self.seconds

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds


@dataclass(frozen=True, slots=True)
class SizeCount:
    """Gives the number of keys (`keys`) with size_from <= members <= size_to at the end of interval `number`."""

    number: int
    size_from: int
    size_to: int
    keys: int


@dataclass(frozen=True, slots=True)
class HotKey:
    """Describes one of the hottest keys of the whole archive. `rank` 1 is the hottest by `by`: members, churn or
    messages."""

    by: str
    rank: int
    key: str
    members_max: int
    members: int
    churn: int
    messages: int
    message_bytes: int


@dataclass(frozen=True, slots=True)
class PlaceFigures:
    """Holds one partition's part of the load: keys and memberships at the fullest interval's end, the rest over the
    whole archive."""

    slice: str
    partition: int
    keys: int
    memberships: int
    churn: int
    messages: int


@dataclass(frozen=True, slots=True)
class Skew:
    """Says how unevenly a figure is spread over slices or partitions. `gini`: 0 is even, near 1 is all in one place."""

    over: str
    figure: str
    places: int
    mean: float
    max: float
    max_by_mean: float
    gini: float


@dataclass(frozen=True, slots=True)
class Census:
    """Holds all results of a census. `fullest`: the number of the interval with most memberships at its end. `slices`:
    what the archive has of each slice; after the earliest end of them, figures lack what that slice did. `notes`: what
    the archive cannot tell."""

    archive: str
    interval_ms: int
    slices: tuple[SliceSpan, ...]
    intervals: tuple[IntervalFigures, ...]
    fullest: int
    sizes: tuple[SizeCount, ...]
    hottest: tuple[HotKey, ...]
    places: tuple[PlaceFigures, ...]
    skews: tuple[Skew, ...]
    notes: tuple[str, ...]

    @property
    def complete_until_ms(self) -> int:
        """Returns the earliest end of a slice's archive."""
        return min(one.last_ms for one in self.slices)

    @property
    def last_ms(self) -> int:
        return max(one.last_ms for one in self.slices)
