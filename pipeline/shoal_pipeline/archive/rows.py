"""Turns records into rows, in bulk: what all rows of a record share is kept once, and spread at the end of a batch.

Belongs here: which rows each kind of record gives (schema.py says it in words). Not here: Arrow (batches.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import NamedTuple, TypeVar

from shoal_contract.chunk import measure_chunk
from shoal_contract.errors import ShoalError
from shoal_contract.journal_record import LEFT_OUT, SET_ASIDE, Record
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from shoal_pipeline.archive.records import Damage
from shoal_slice_node.core.apply.records import (
    NO_PRODUCER,
    Kind,
    decode_acks,
    decode_change,
    decode_due,
    decode_expire,
    decode_farewells,
    decode_ownership,
    decode_retries,
    decode_trims,
)
from shoal_slice_node.core.rows.ids import partition_of_id
from shoal_slice_node.core.verbs.table import VERBS, columns_of, verb_of
from shoal_slice_node.core.verbs.verb import Columns

Item = TypeVar("Item")
Cells = list[int | None]
Names = list[bytes | None]
CHANGES = frozenset((*(verb.name for verb in VERBS.values()), "other"))
_BY_RECORD: dict[int, str] = {
    Kind.ACKS: "ack",
    Kind.TRIM: "trim",
    Kind.RECLAIM: "reclaim",
    Kind.OWNERSHIP: "own",
    Kind.EXPIRE: "expire",
    Kind.RETRY: "retry",
    Kind.DUE: "due",
    Kind.FAREWELL: "said",
}


class Run(NamedTuple):
    """Holds the values that `rows` consecutive rows share. `producer` None: unnumbered."""

    rows: int
    lsn: int
    time_ms: int
    kind: str
    step: int
    producer: bytes | None
    sequence: int | None


class Rows:
    """Builds columns. Invariant: each cell column has as many items as the runs have rows.

    `partitions`: how many the cluster has; None: unknown. `kinds`: the wanted ones; None: all.
    """

    def __init__(self, partitions: int | None, kinds: frozenset[str] | None = None) -> None:
        self._partitions = partitions
        self._kinds = kinds
        self._changes_wanted = kinds is None or bool(kinds & CHANGES)
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.runs: list[Run] = []
        self.keys: Names = []
        self.queues: Names = []
        self.requests: Cells = []
        self.partitions: Cells = []
        self.offsets: Cells = []
        self.messages: Cells = []
        self.sizes: Cells = []

    def _wants(self, kind: str) -> bool:
        return self._kinds is None or kind in self._kinds

    def add(self, record: Record) -> None:
        """Adds a record's rows. One that an operator set aside (`shoal repair`) gives rows of all that it asked
        for, as part of it may have been done; but no row if nothing of it was."""
        if not record.flags & SET_ASIDE or self._can_be_read(record):
            self._add(record)

    def _can_be_read(self, record: Record) -> bool:
        if record.flags & LEFT_OUT or not (record.kind == Kind.CHANGE or record.kind in _BY_RECORD):
            return False
        try:
            Rows(self._partitions)._add(record)
        except Exception:
            return False
        return True

    def _add(self, record: Record) -> None:
        if record.kind == Kind.CHANGE:
            if self._changes_wanted:
                self._add_change(record)
            return
        kind = _BY_RECORD.get(record.kind, "other")
        if self._wants(kind):
            _RECORDS[kind](self, record)

    def add_damage(self, damage: Damage) -> None:
        if self._wants("damaged"):
            run = Run(1, damage.lsn, damage.time_ms, "damaged", 0, None, None)
            self._append(run, offsets=[damage.position], messages=[damage.records], sizes=[damage.bytes])

    def _append(
        self,
        run: Run,
        *,
        keys: Iterable[bytes | None] | None = None,
        queues: Iterable[bytes | None] | None = None,
        requests: Iterable[int] | None = None,
        partitions: Iterable[int | None] | None = None,
        offsets: Iterable[int | None] | None = None,
        messages: Iterable[int | None] | None = None,
        sizes: Iterable[int | None] | None = None,
    ) -> None:
        """Adds the rows of a run. Columns left out are null; `requests` left out: numbered from 0."""
        nothing = [None] * run.rows
        self.count += run.rows
        self.runs.append(run)
        self.keys.extend(nothing if keys is None else keys)
        self.queues.extend(nothing if queues is None else queues)
        self.requests.extend(range(run.rows) if requests is None else requests)
        self.partitions.extend(nothing if partitions is None else partitions)
        self.offsets.extend(nothing if offsets is None else offsets)
        self.messages.extend(nothing if messages is None else messages)
        self.sizes.extend(nothing if sizes is None else sizes)

    def _partitions_of(self, keys: Sequence[bytes]) -> list[int] | None:
        count = self._partitions
        return None if count is None else [partition_of(key, count) for key in keys]

    def _add_change(self, record: Record) -> None:
        head, data = decode_change(record.payload)
        producer = None if head.producer == NO_PRODUCER else head.producer
        sequence = None if producer is None else head.sequence
        for number, step in enumerate(wire.Change.FromString(data).steps):
            verb = verb_of(step)
            kind = "other" if verb is None else verb.name
            if self._wants(kind):
                run = Run(0, record.lsn, record.time_ms, kind, number, producer, sequence)
                if verb is None:
                    self._append(run._replace(rows=1))
                else:
                    self._add_columns(run, columns_of(step))

    def _add_columns(self, run: Run, step: Columns) -> None:
        """Adds a row for each key, or for each queue of a verb without keys. A queue without keys gives a row too where
        the verb says so: an import declares it."""
        keys, queues, counts = step.keys, step.queues, step.counts
        if not keys and counts is None:
            self._append(run._replace(rows=len(queues)), queues=queues)
            return
        measured = [_measured(chunk) for chunk in step.chunks]
        self._append(
            run._replace(rows=len(keys)),
            keys=keys,
            queues=(_spread(queues, counts) if counts is not None else queues) if queues else None,
            requests=_spread(range(len(queues)), counts) if counts is not None else None,
            partitions=self._partitions_of(keys),
            offsets=step.offsets,
            messages=[messages for messages, _ in measured] if measured else step.messages or None,
            sizes=[size for _, size in measured] if measured else None,
        )
        alone = [number for number, count in enumerate(counts or ()) if not count] if step.alone else []
        if alone:
            named = [queues[number] for number in alone]
            self._append(run._replace(rows=len(alone)), queues=named, requests=alone)

    def _acks(self, record: Record) -> None:
        _, acks = decode_acks(record.payload)
        self._append(
            _plain(record, "ack", len(acks)),
            partitions=[partition_of_id(ack.key_id) for ack in acks],
            offsets=[ack.first for ack in acks],
            messages=[ack.to - ack.first for ack in acks],
        )

    def _trims(self, record: Record) -> None:
        trims = list(decode_trims(record.payload))
        self._append(
            _plain(record, "trim", len(trims)),
            partitions=[partition_of_id(trim.key_id) for trim in trims],
            offsets=[trim.low for trim in trims],
        )

    def _ownership(self, record: Record) -> None:
        version, owned = decode_ownership(record.payload)
        numbers = [partition for partition, is_owned in enumerate(owned) if is_owned]
        run = _plain(record, "own", len(numbers))._replace(sequence=version)
        self._append(run, partitions=numbers, messages=[len(owned)] * len(numbers))

    def _expire(self, record: Record) -> None:
        decided_lsn, queues = decode_expire(record.payload)
        names = [name for _, name in queues]
        run = _plain(record, "expire", len(names))
        self._append(run, queues=names, offsets=[decided_lsn] * len(names))

    def _retries(self, record: Record) -> None:
        _, retries = decode_retries(record.payload)
        for number, retry in enumerate(retries):  # `step` tells the fate, and a run has one.
            run = _plain(record, "retry", 1)._replace(step=retry.fate)
            self._append(
                run,
                requests=[number],
                partitions=[partition_of_id(retry.key_id)],
                offsets=[retry.first],
                messages=[retry.to - retry.first],
                sizes=[retry.times],
            )

    def _due(self, record: Record) -> None:
        keys = [due.name for due in decode_due(record.payload)]
        run = _plain(record, "due", len(keys))
        self._append(run, keys=keys, partitions=self._partitions_of(keys))

    def _said(self, record: Record) -> None:
        decided_lsn, farewells = decode_farewells(record.payload)
        keys = [farewell.key for farewell in farewells]
        self._append(
            _plain(record, "said", len(keys)),
            keys=keys,
            queues=[farewell.queue or None for farewell in farewells],
            partitions=self._partitions_of(keys),
            offsets=[decided_lsn] * len(keys),
        )

    def _reclaim(self, record: Record) -> None:
        self._append(_plain(record, "reclaim", 1))

    def _other(self, record: Record) -> None:
        self._append(_plain(record, "other", 1))


_RECORDS: dict[str, Callable[[Rows, Record], None]] = {
    "ack": Rows._acks,
    "trim": Rows._trims,
    "reclaim": Rows._reclaim,
    "own": Rows._ownership,
    "expire": Rows._expire,
    "retry": Rows._retries,
    "due": Rows._due,
    "said": Rows._said,
    "other": Rows._other,
}


def _plain(record: Record, kind: str, rows: int) -> Run:
    return Run(rows, record.lsn, record.time_ms, kind, 0, None, None)


def _spread(items: Iterable[Item], counts: Iterable[int]) -> Iterable[Item]:
    return chain.from_iterable(map(repeat, items, counts))


def _measured(chunk: bytes) -> tuple[int | None, int | None]:
    """Returns (messages, body bytes) of a chunk; (None, None) for a chunk that the slice refused too."""
    try:
        return measure_chunk(chunk)
    except ShoalError:
        return None, None
