"""Decides which rows are wanted, from Spark's filters, as far as segments, records and steps can be left unread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from shoal_pipeline.archive.folder import Span, by_slice, first_times_ms
from shoal_pipeline.limits import CLOCK_SLACK_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = frozenset(("time", "lsn", "slice", "kind"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Says which rows are wanted. Times are in microseconds since 1970, both ends inclusive. None: no bound."""

    kinds: frozenset[str] | None = None
    slices: frozenset[str] | None = None
    from_us: int | None = None
    to_us: int | None = None

    def has_time(self, time_ms: int) -> bool:
        time_us = time_ms * 1000
        return (self.from_us is None or time_us >= self.from_us) and (self.to_us is None or time_us <= self.to_us)

    def narrowed(self, one: Filter) -> Wanted | None:
        """Returns what is wanted with this filter too; None if the filter does not help here."""
        if not isinstance(one, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            return self if isinstance(one, IsNotNull) and one.attribute[0] in _NEVER_NULL else None
        if one.attribute == ("time",):
            return self._with_time(one)
        if one.attribute not in (("kind",), ("slice",)) or not isinstance(one, EqualTo | In):
            return None
        values = frozenset(one.value if isinstance(one, In) else (one.value,))
        if one.attribute == ("kind",):
            return replace(self, kinds=values if self.kinds is None else self.kinds & values)
        return replace(self, slices=values if self.slices is None else self.slices & values)

    def _with_time(self, one: Filter) -> Wanted | None:
        value = getattr(one, "value", None)
        if not isinstance(value, datetime):
            return None
        time_us = _microseconds(value)
        match one:
            case EqualTo():
                return self._between(time_us, time_us)
            case GreaterThan():
                return self._between(time_us + 1, None)
            case GreaterThanOrEqual():
                return self._between(time_us, None)
            case LessThan():
                return self._between(None, time_us - 1)
            case LessThanOrEqual():
                return self._between(None, time_us)
        return None

    def _between(self, from_us: int | None, to_us: int | None) -> Wanted:
        lower = [bound for bound in (self.from_us, from_us) if bound is not None]
        upper = [bound for bound in (self.to_us, to_us) if bound is not None]
        return replace(self, from_us=max(lower, default=None), to_us=min(upper, default=None))


def push(wanted: Wanted, filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """Returns what is wanted with these filters, and the filters that Spark must still apply."""
    left: list[Filter] = []
    for one in filters:
        narrowed = wanted.narrowed(one)
        if narrowed is None:
            left.append(one)
        else:
            wanted = narrowed
    return wanted, left


def choose_spans(spans: Iterable[Span], wanted: Wanted) -> list[Span]:
    """Returns the spans that may have wanted rows. A segment's times lie between its first record's and the next
    segment's, plus or minus CLOCK_SLACK_MS: a leader's times never go back, but the next leader's clock may be
    behind."""
    if wanted.slices is not None:
        spans = [span for span in spans if span.slice in wanted.slices]
    if wanted.from_us is None and wanted.to_us is None:
        return list(spans)
    chosen: list[Span] = []
    for those in by_slice(spans).values():
        times = first_times_ms(those)
        for span, first, following in zip(those, times, [*times[1:], None], strict=True):
            late = first is not None and wanted.to_us is not None and (first - CLOCK_SLACK_MS) * 1000 > wanted.to_us
            ends = following is not None and wanted.from_us is not None
            if not late and not (ends and (following + CLOCK_SLACK_MS) * 1000 < wanted.from_us):  # type: ignore[operator]
                chosen.append(span)
    return chosen


def _microseconds(value: datetime) -> int:
    """Returns microseconds since 1970. Spark's times without a zone are UTC here, as the session's zone is."""
    return (value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
