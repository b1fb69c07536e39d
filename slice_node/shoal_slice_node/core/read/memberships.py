"""Reads memberships from one slice's tables: all of them in pages (export), or whether given ones exist (verify).

Pure. The tables must not change meanwhile: they are a snapshot of the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import bulk_pb2 as wire
from shoal_contract.wire.slice_pb2 import Imports
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.limits import EXPORTED_MEMBERSHIP_BYTES_MAX, EXPORTED_RANGE_BYTES_MAX
from shoal_slice_node.core.rows.detail_row import KEY_ID, detail_key, done_offsets, places_of
from shoal_slice_node.core.rows.key_row import ID, NAME
from shoal_slice_node.core.rows.small_rows import OWNED, decode_owned
from shoal_slice_node.core.tables.tables import Tables


class Membership(NamedTuple):
    """Describes one binding. `end` 0: still bound. `detail`: its row in table `detail`, if it has one."""

    key_id: bytes
    start: int
    cursor: int
    end: int
    detail: bytes | None


def memberships_of(tables: Tables, queue: Queue) -> Iterator[Membership]:
    """Yields each binding of a queue: the live ones, then those that ended with a backlog. It keeps no more than one
    bucket and one detail row: those of a large queue may take gigabytes."""
    detail_get = tables.detail.get
    for number in range(queue.extra_buckets + 1):
        bucket = queue.numbered_bucket(number)
        cursors = bucket.cursors
        for key_id, start in bucket.starts.items():
            row = detail_get(detail_key(queue.id, key_id)) if queue.details else None
            yield Membership(key_id, start, cursors.get(key_id, start), 0, row)
        queue.forget_buckets()
    for row_key, row in tables.detail.scan(queue.id) if queue.details else ():
        start, cursor, end = places_of(row)
        if end:
            yield Membership(row_key[KEY_ID], start, cursor, end, row)


def export_pages(tables: Tables, lsn: int, memberships_max: int, bytes_max: int) -> Iterator[wire.ExportResponse]:
    """Yields pages of every queue, in the order of the ids, with its live bindings and those that ended with a backlog.
    A page has about `memberships_max` memberships, where a queue without any counts as one, and at most `bytes_max`
    bytes, which its last membership may exceed. There is at least one page."""
    page = _Page(tables, lsn, memberships_max, bytes_max)
    for name, membership in _all_memberships(tables):
        page.add(name, membership)
        if page.full:
            yield page.to_wire()
            page = _Page(tables, lsn, memberships_max, bytes_max)
    yield page.to_wire()


def _all_memberships(tables: Tables) -> Iterator[tuple[bytes, Membership | None]]:
    """Yields each membership with its queue's name; None for a queue without any."""
    for queue_id, row in tables.queue.scan():
        queue = Queue.decode(tables, queue_id, row)
        alone = True
        for membership in memberships_of(tables, queue):
            alone = False
            yield queue.name, membership
        if alone:
            yield queue.name, None


class _Page:
    """Collects one page, by columns. It keeps no detail rows: their counts of deliveries take no room in it."""

    def __init__(self, tables: Tables, lsn: int, memberships_max: int, bytes_max: int) -> None:
        self._name_of = tables.key_name.get
        self._lsn = lsn
        self._memberships_left = memberships_max
        self._bytes_left = bytes_max
        self._queues: list[bytes] = []
        self._key_counts: list[int] = []
        self._keys: list[bytes] = []
        self._places: list[tuple[int, int, int]] = []
        self._done_counts: list[int] = []
        self._done: list[int] = []

    @property
    def full(self) -> bool:
        return self._memberships_left <= 0 or self._bytes_left <= 0

    def add(self, queue: bytes, membership: Membership | None) -> None:
        """Adds a membership, or a queue without any. The memberships of a queue come in a row."""
        self._memberships_left -= 1
        if not self._queues or self._queues[-1] != queue:
            self._queues.append(queue)
            self._key_counts.append(0)
            self._bytes_left -= len(queue) + EXPORTED_MEMBERSHIP_BYTES_MAX
        if membership is None:
            return
        key_id, start, cursor, end, detail = membership
        key = (self._name_of(key_id) or b"\x00\x00")[NAME]
        done = () if detail is None else done_offsets(detail)
        self._key_counts[-1] += 1
        self._keys.append(key)
        self._places.append((start, cursor, end))
        self._done_counts.append(len(done) // 2)
        self._done.extend(done)
        self._bytes_left -= len(key) + EXPORTED_MEMBERSHIP_BYTES_MAX + len(done) // 2 * EXPORTED_RANGE_BYTES_MAX

    def to_wire(self) -> wire.ExportResponse:
        return wire.ExportResponse(
            lsn=self._lsn,
            queues=self._queues,
            key_counts=self._key_counts,
            keys=self._keys,
            starts=[start for start, _, _ in self._places],
            cursors=[cursor for _, cursor, _ in self._places],
            ends=[end for _, _, end in self._places],
            done_counts=self._done_counts,
            done=self._done,
        )


class Verifier:
    """Checks whether memberships exist, in both directions: the queue's entry, and the key's."""

    def __init__(self, tables: Tables, lsn: int) -> None:
        self._tables = tables
        self._lsn = lsn
        owned = tables.meta.get(OWNED)
        self._partitions = 1 if owned is None else len(decode_owned(owned)[1])

    def verify(self, chunk: int, imports: Imports) -> wire.VerifyResponse:
        """Counts the memberships of a step that exist and that are missing. A queue without keys counts as one. The
        step must be well-formed (core/verbs/changes)."""
        answer = wire.VerifyResponse(chunk=chunk, lsn=self._lsn)
        keys = list(imports.keys)
        position = found = missing = 0
        for name, count in zip(imports.queues, imports.key_counts, strict=True):
            lacking = self._lacking(name, keys[position : position + count])
            position += count
            found += max(1, count) - len(lacking)
            missing += len(lacking)
            if lacking and not answer.missing_queue:
                answer.missing_queue, answer.missing_key = name, lacking[0]
        answer.found, answer.missing = found, missing
        return answer

    def _lacking(self, name: bytes, keys: list[bytes]) -> list[bytes]:
        """Returns the keys that the queue is not bound to; b"" for a queue without keys that does not exist."""
        tables, partitions = self._tables, self._partitions
        queue_id = tables.queue_by_name.get(name)
        row = None if queue_id is None else tables.queue.get(queue_id)
        if queue_id is None or row is None:
            return keys or [b""]
        queue = Queue.decode(tables, queue_id, row)
        lacking = []
        for key in keys:
            key_row = tables.key.get(partition_of(key, partitions).to_bytes(2, "big") + key)
            key_id = b"" if key_row is None else key_row[ID]
            if key_id not in queue.bucket(key_id).starts or not tables.binding.has(key_id, queue_id):
                lacking.append(key)
        return lacking
