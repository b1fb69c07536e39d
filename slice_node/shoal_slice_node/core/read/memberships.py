"""Reads memberships from one slice's tables: all of them in pages (export), or whether given ones exist (verify).

Pure. The tables must not change meanwhile: they are a snapshot of the store.
"""

from __future__ import annotations

from collections.abc import Iterator

from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import bulk_pb2 as wire
from shoal_contract.wire.slice_pb2 import Imports
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.rows.detail_row import Detail, decode_detail
from shoal_slice_node.core.rows.ids import ID_BYTES
from shoal_slice_node.core.rows.key_row import ID, NAME
from shoal_slice_node.core.rows.small_rows import OWNED, decode_owned
from shoal_slice_node.core.tables.tables import Tables

_NO_DETAIL = Detail(0, 0)


def export_pages(tables: Tables, lsn: int, memberships_max: int) -> Iterator[wire.ExportResponse]:
    """Yields pages of every queue, in the order of the ids, with its live bindings and those that ended with a backlog.
    A page has about `memberships_max` memberships; a queue without any counts as one. There is at least one page."""
    page = wire.ExportResponse(lsn=lsn)
    room = memberships_max
    for queue_id, row in tables.queue.scan():
        queue = Queue.decode(tables, queue_id, row)
        entries = list(_entries(tables, queue))
        while True:
            taken, entries = entries[:room], entries[room:]
            _add(page, tables, queue.name, taken)
            room -= max(1, len(taken))
            if room <= 0:
                yield page
                page, room = wire.ExportResponse(lsn=lsn), memberships_max
            if not entries:
                break
    yield page


def _entries(tables: Tables, queue: Queue) -> Iterator[tuple[bytes, int, int, Detail]]:
    """Yields (key id, start, cursor, detail) for each binding."""
    details = {}
    if queue.details:
        details = {key[ID_BYTES:]: decode_detail(row) for key, row in tables.detail.scan(queue.id)}
    for key_id, start, cursor in queue.entries():
        yield key_id, start, cursor, details.get(key_id, _NO_DETAIL)
    for key_id, detail in details.items():
        if detail.ended:
            yield key_id, detail.start, detail.cursor, detail


def _add(page: wire.ExportResponse, tables: Tables, name: bytes, entries: list[tuple[bytes, int, int, Detail]]) -> None:
    name_of = tables.key_name.get
    page.queues.append(name)
    page.key_counts.append(len(entries))
    page.keys.extend([(name_of(key_id) or b"\x00\x00")[NAME] for key_id, *_ in entries])
    page.starts.extend([start for _, start, _, _ in entries])
    page.cursors.extend([cursor for _, _, cursor, _ in entries])
    page.ends.extend([detail.end for *_, detail in entries])
    for *_, detail in entries:
        pairs = detail.done.pairs()
        page.done_counts.append(len(pairs))
        page.done.extend([offset for pair in pairs for offset in pair])


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
