"""Checks the invariants of queues: names, buckets, details, and that keys know their members. Part of `check`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from shoal_slice_node.core.apply.lookups import key_by_id
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.invariants.problem import Problem
from shoal_slice_node.core.rows.detail_row import Detail, decode_detail
from shoal_slice_node.core.rows.ids import ID_BYTES
from shoal_slice_node.core.rows.key_row import KeyRow, decode_key
from shoal_slice_node.core.rows.queue_row import bucket_key, bucket_number, decode_bucket_row, options_of
from shoal_slice_node.core.rows.small_rows import NEXT_QUEUE, RECLAIM_QUEUE
from shoal_slice_node.core.rows.transient_row import decode_transient
from shoal_slice_node.core.tables.tables import Tables


class _Totals:
    """Sums up what queues say they have, to compare it with what the other tables hold."""

    def __init__(self) -> None:
        self.bindings = 0
        self.ended = 0
        self.details = 0
        self.buckets = 0


def check_queues(tables: Tables) -> Iterator[Problem]:
    totals = _Totals()
    for queue_id, row in chain(tables.queue.scan(), _dropped(tables)):
        yield from _check_queue(tables, Queue.decode(tables, queue_id, row), totals)
    yield from _check_names(tables)
    yield from _check_totals(tables, totals)
    yield from _check_transients(tables)


def _dropped(tables: Tables) -> Iterator[tuple[bytes, bytes]]:
    for row_key, row in tables.reclaim.scan(RECLAIM_QUEUE):
        yield row_key[1:], row


def _check_names(tables: Tables) -> Iterator[Problem]:
    next_row = tables.meta.get(NEXT_QUEUE)
    next_number = 1 if next_row is None else int.from_bytes(next_row, "big")
    for queue_id, row in tables.queue.scan():
        if tables.queue_by_name.get(Queue.decode(tables, queue_id, row).name) != queue_id:
            yield Problem("queue", queue_id.hex(), "its name leads elsewhere")
        if int.from_bytes(queue_id, "big") >= next_number:
            yield Problem("queue", queue_id.hex(), f"its number is not below the next, {next_number}")
    for name, queue_id in tables.queue_by_name.scan():
        if tables.queue.get(queue_id) is None:
            yield Problem("queue_by_name", repr(name), f"queue {queue_id.hex()} is not there")


def _check_transients(tables: Tables) -> Iterator[Problem]:
    for queue_id, row in tables.queue.scan():
        if options_of(row).expires_after_s and tables.transient.get(queue_id) is None:
            yield Problem("queue", queue_id.hex(), "it is transient, and table transient does not have it")
    for queue_id, row in tables.transient.scan():
        decode_transient(row)
        queue = tables.queue.get(queue_id)
        if queue is None or not options_of(queue).expires_after_s:
            yield Problem("transient", queue_id.hex(), "there is no transient queue with this id")


def _check_queue(tables: Tables, queue: Queue, totals: _Totals) -> Iterator[Problem]:
    shown = queue.id.hex()
    bindings = 0
    for number in range(queue.extra_buckets + 1):
        if number:
            totals.buckets += 1
            row = tables.membership.get(bucket_key(queue.id, number))
            if row is None:
                yield Problem("membership", shown, f"bucket {number} of {queue.extra_buckets} is not there")
                continue
            bucket = decode_bucket_row(row)
        else:
            bucket = queue.first_bucket
        bindings += len(bucket.starts)
        for key_id, start in bucket.starts.items():
            if bucket_number(key_id, queue.extra_buckets + 1) != number:
                yield Problem("queue", shown, f"key {key_id.hex()} is in bucket {number}, where none would look")
            yield from _check_binding(tables, queue, key_id, start, bucket.cursor(key_id))
    totals.bindings += bindings
    if bindings != queue.bindings:
        yield Problem("queue", shown, f"counts {queue.bindings} bindings and has {bindings}")
    yield from _check_details(tables, queue, totals)


def _check_binding(tables: Tables, queue: Queue, key_id: bytes, start: int, cursor: int) -> Iterator[Problem]:
    shown = f"{queue.id.hex()} key {key_id.hex()}"
    if not tables.binding.has(key_id, queue.id):
        yield Problem("queue", shown, "the key does not know of this binding")
    key = _key(tables, key_id)
    if key is None:
        yield Problem("queue", shown, "bound to a key that is not there")
    elif not (cursor <= key.head and start <= key.head):
        yield Problem("queue", shown, f"start {start}, cursor {cursor}; the key has {key.low} to {key.head}")


def _check_details(tables: Tables, queue: Queue, totals: _Totals) -> Iterator[Problem]:
    details = 0
    for row_key, row in tables.detail.scan(queue.id):
        details += 1
        detail = decode_detail(row)
        totals.ended += detail.ended
        yield from _check_detail(tables, queue, row_key[ID_BYTES:], detail)
    totals.details += details
    if details != queue.details:
        yield Problem("queue", queue.id.hex(), f"counts {queue.details} details and has {details}")


def _check_detail(tables: Tables, queue: Queue, key_id: bytes, detail: Detail) -> Iterator[Problem]:
    shown = f"{queue.id.hex()} key {key_id.hex()}"
    bucket = queue.bucket(key_id)
    live = key_id in bucket.starts
    key = _key(tables, key_id)
    if key is None:
        yield Problem("detail", shown, "of a key that is not there")
        return
    if live == detail.ended or tables.ended.has(key_id, queue.id) != detail.ended:
        yield Problem("detail", shown, f"ended is {detail.ended}, the binding's live is {live}")
    if live and (bucket.starts[key_id], bucket.cursor(key_id)) != (detail.start, detail.cursor):
        yield Problem("detail", shown, "start and cursor are not the bucket's")
    end = detail.end or key.head
    if not detail.cursor < end <= key.head:
        yield Problem("detail", shown, f"cursor {detail.cursor}, end {end}; the key has {key.low} to {key.head}")
    position = detail.cursor
    for first, to in detail.done.pairs():
        if not position < first < to <= end:
            yield Problem("detail", shown, f"done {first} to {to} after {position}, below {end}")
        position = to
    position = detail.cursor
    for first, to, times in detail.counts:
        if not position <= first < to <= end or not times or detail.done.within(first, to):
            yield Problem(
                "detail", shown, f"counts {times} deliveries of {first} to {to} after {position}, below {end}"
            )
        position = to
    if detail.counts and not queue.options.max_deliveries:
        yield Problem("detail", shown, "counts deliveries, and its queue has no bound for them")
    if not detail.ended and not detail.done and not detail.counts:
        yield Problem("detail", shown, "says nothing: live, without done ranges and counts")


def _check_totals(tables: Tables, totals: _Totals) -> Iterator[Problem]:
    for table, found, expected in (
        ("binding", sum(1 for _ in tables.binding.scan()), totals.bindings),
        ("ended", sum(1 for _ in tables.ended.scan()), totals.ended),
        ("detail", sum(1 for _ in tables.detail.scan()), totals.details),
        ("membership", sum(1 for _ in tables.membership.scan()), totals.buckets),
    ):
        if found != expected:
            yield Problem(table, "rows", f"{found} are there, queues account for {expected}")


def _key(tables: Tables, key_id: bytes) -> KeyRow | None:
    found = key_by_id(tables, key_id)
    return None if found is None else decode_key(found[1])
