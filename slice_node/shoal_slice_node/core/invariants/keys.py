"""Checks the invariants of keys, their logs and partitions. Part of `check`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import groupby
from operator import itemgetter

from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import ShoalError
from shoal_contract.limits import FIRST_OFFSET
from shoal_contract.options import PLAIN
from shoal_slice_node.core.apply.lookups import key_by_id
from shoal_slice_node.core.invariants.problem import Problem
from shoal_slice_node.core.rows.due_row import expiry_key, is_delayed_id
from shoal_slice_node.core.rows.history_row import EXPIRING, ROW, decode_mark, mark_key
from shoal_slice_node.core.rows.ids import number_of_id, partition_of_id
from shoal_slice_node.core.rows.key_row import NAME, KeyRow, decode_key
from shoal_slice_node.core.rows.log_row import chunk_of, decode_log
from shoal_slice_node.core.rows.small_rows import KEPT, decode_kept, decode_partition
from shoal_slice_node.core.tables.tables import Tables


def check_keys(tables: Tables, local_known: bool) -> Iterator[Problem]:
    keys = with_log = messages = 0
    for full_name, row in tables.key.scan():
        keys += 1
        key = decode_key(row)
        with_log += key.low < key.head
        messages += key.head - key.low
        yield from _check_key(tables, full_name, key, local_known)
    for key_id, row in tables.history.scan():
        if key_id.startswith(EXPIRING):
            yield from _check_mark(tables, key_id[len(EXPIRING) :], decode_mark(row))
        elif key_by_id(tables, key_id) is None:
            yield Problem("history", key_id.hex(), "of a key that is not there")
    names = sum(1 for _ in tables.key_name.scan())
    if names != keys:
        yield Problem("key_name", "rows", f"{names} are there, for {keys} keys")
    logs = body_bytes = 0
    for key_id, rows in groupby(tables.log.scan(), itemgetter(0)):
        if is_delayed_id(key_id):
            continue  # See check_due.
        logs += 1
        body_bytes += yield from _check_log(tables, key_id, rows)
    if logs != with_log:
        yield Problem("log", "keys", f"{logs} keys have a log, {with_log} should")
    kept = tables.local_totals.get(KEPT)
    if local_known and kept is not None and decode_kept(kept) != (messages, body_bytes):
        yield Problem("local_totals", KEPT.decode(), f"says {decode_kept(kept)}; there are {(messages, body_bytes)}")


def _check_key(tables: Tables, full_name: bytes, key: KeyRow, local_known: bool) -> Iterator[Problem]:
    shown, number = repr(full_name[NAME]), number_of_id(key.id)
    if full_name[:2] != key.id[:2]:
        yield Problem("key", shown, f"its id is of partition {partition_of_id(key.id)}")
    if tables.key_name.get(key.id) != full_name:
        yield Problem("key", shown, "its id leads to another name")
    next_number = decode_partition(tables.partition.get(full_name[:2])).next_number
    if number >= next_number:
        yield Problem("key", shown, f"its number {number} is not below the next, {next_number}")
    if not FIRST_OFFSET <= key.low <= key.head:
        yield Problem("key", shown, f"low {key.low}, head {key.head}")
    if bool(key.options.history_age_s) != (tables.history.get(key.id) == ROW):
        yield Problem("key", shown, f"history for {key.options.history_age_s} s, and table `history` says otherwise")
    members = tables.binding.count(key.id) + tables.ended.count(key.id)
    if not members and key.options == PLAIN and local_known and tables.local_hints.get(key.id) is None:
        yield Problem(
            "key", shown, "nothing is bound to it and `local_hints` does not name it, so it would never be deleted"
        )


def _check_mark(tables: Tables, key_id: bytes, due_ms: int) -> Iterator[Problem]:
    """Checks that a key with messages that expire is looked at when the first one does."""
    found = key_by_id(tables, key_id)
    key = None if found is None else decode_key(found[1])
    first = None if key is None else next(tables.log.heads(key_id, key.low, key.low), None)
    if first is None:
        yield Problem("history", key_id.hex(), "says that messages expire, of a key that has none")
    elif not _is_due(decode_log(first[1]).expires_ms, due_ms):
        yield Problem("history", key_id.hex(), f"says that the first message expires at {due_ms}; it does not")
    elif due_ms and tables.due.get(expiry_key(due_ms, key_id)) is None:
        yield Problem("history", key_id.hex(), f"has no row in table due at {due_ms}")


def _is_due(expires_ms: int, due_ms: int) -> bool:
    """Returns whether a key whose first message expires then may be due then: what a record left of it is due later."""
    return due_ms >= expires_ms if expires_ms else not due_ms


def _check_log(
    tables: Tables, key_id: bytes, rows: Iterator[tuple[bytes, int, bytes]]
) -> Generator[Problem, None, int]:
    """Yields the problems of one log. Returns its body bytes."""
    found = key_by_id(tables, key_id)
    if found is None:
        for _, first, _ in rows:
            yield Problem("log", key_id.hex(), f"row {first} of a key that is not there")
        return 0
    key = decode_key(found[1])
    shown, position = repr(found[0][NAME]), key.low
    body_bytes: int | None = None
    kept_bytes = 0
    for _, first, log_row in rows:
        header = decode_log(log_row)
        kept_bytes += header.body_bytes
        if header.expires_ms and tables.history.get(mark_key(key_id)) is None:
            yield Problem("log", shown, f"row {first} expires, and table history does not say so of its key")
        if first != position:
            yield Problem("log", shown, f"row {first} follows where {position} should")
        if body_bytes not in (None, header.body_bytes_before):
            yield Problem(
                "log", shown, f"row {first}: {header.body_bytes_before} body bytes before it, not {body_bytes}"
            )
        yield from check_chunk(shown, first, log_row)
        position = first + header.messages
        body_bytes = header.body_bytes_before + header.body_bytes
    if position != key.head or body_bytes != key.body_bytes:
        text = f"ends at {position} with {body_bytes} body bytes; the key says {key.head}, {key.body_bytes}"
        yield Problem("log", shown, text)
    return kept_bytes


def check_chunk(shown: str, first: int, row: bytes) -> Iterator[Problem]:
    """Checks that a log row's chunk is what its header says."""
    header = decode_log(row)
    try:
        bodies = parse_chunk(chunk_of(row)).bodies
    except ShoalError as error:
        yield Problem("log", shown, f"row {first}: {error}")
        return
    found = (len(bodies), sum(map(len, bodies)))
    if found != (header.messages, header.body_bytes):
        yield Problem("log", shown, f"row {first} has {found} messages and body bytes; its header says otherwise")
