"""Checks the invariants of what is due at an absolute time. Part of `check`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter

from shoal_slice_node.core.invariants.keys import check_chunk
from shoal_slice_node.core.invariants.problem import Problem
from shoal_slice_node.core.rows.due_row import (
    DELAYED,
    DELAYED_OF_KEY,
    FIRST,
    MESSAGE_EXPIRES_ROW,
    DelayedOfKey,
    decode_counts,
    decode_delayed,
    decode_due_key,
    decode_of_key,
    delayed_id,
    expiring_key,
    is_delayed_id,
)
from shoal_slice_node.core.rows.history_row import decode_mark, mark_key
from shoal_slice_node.core.rows.key_row import NAME
from shoal_slice_node.core.rows.log_row import chunk_of, decode_log
from shoal_slice_node.core.tables.tables import Tables


def check_due(tables: Tables) -> Iterator[Problem]:
    """Yields the problems of delayed publishes: each has its chunk, nothing else has one, and their sums are right."""
    counts = decode_counts(tables.meta.get(DELAYED))
    chunks = chunk_bytes = 0
    of_keys: dict[bytes, DelayedOfKey] = {}
    for row_key, row in tables.due.scan():
        due = decode_due_key(row_key)
        number = due.number
        key_id = expiring_key(row_key)
        if key_id is not None:
            mark = tables.history.get(mark_key(key_id))
            if row != MESSAGE_EXPIRES_ROW or mark is None or decode_mark(mark) != due.time_ms:
                yield Problem("due", row_key.hex(), "says that a key's first message expires; table history does not")
            continue
        delayed = decode_delayed(row)
        shown = f"{row_key.hex()} of key {delayed.full_name[NAME]!r}"
        if due.refused is None:
            yield Problem("due", shown, f"is of no known kind: {due.letter!r}")
            continue
        chunks += 1
        chunk_bytes += delayed.chunk_bytes
        own = of_keys.get(delayed.full_name, DelayedOfKey(0, 0))
        of_keys[delayed.full_name] = DelayedOfKey(own.chunks + 1, own.chunk_bytes + delayed.chunk_bytes)
        if number >= counts.next_number:
            yield Problem("due", shown, f"its number {number} is not below the next, {counts.next_number}")
        rows = list(islice(tables.log.read(delayed_id(number), FIRST, FIRST), 1))
        if [first for first, _ in rows] != [FIRST]:
            yield Problem("due", shown, "its chunk is not there")
            continue
        header = decode_log(rows[0][1])
        if (header.messages, header.body_bytes) != (delayed.messages, delayed.body_bytes):
            yield Problem("due", shown, f"its chunk has {header.messages} messages, {header.body_bytes} body bytes")
        if len(chunk_of(rows[0][1])) != delayed.chunk_bytes:
            yield Problem("due", shown, f"its chunk has not {delayed.chunk_bytes} bytes")
        yield from check_chunk(shown, FIRST, rows[0][1])
    if (chunks, chunk_bytes) != counts[1:]:
        yield Problem("meta", DELAYED.decode(), f"says {tuple(counts[1:])}; there are {(chunks, chunk_bytes)}")
    for row_key, row in tables.meta.scan(prefix=DELAYED_OF_KEY):
        full_name = row_key[len(DELAYED_OF_KEY) :]
        said, own = decode_of_key(row), of_keys.pop(full_name, DelayedOfKey(0, 0))
        if said != own or not own.chunks:
            yield Problem("meta", f"delayed of key {full_name[NAME]!r}", f"says {tuple(said)}; there are {tuple(own)}")
    for full_name, own in of_keys.items():
        yield Problem("meta", f"delayed of key {full_name[NAME]!r}", f"has no row; there are {tuple(own)}")
    logs = sum(1 for key_id, _ in groupby(tables.log.scan(), itemgetter(0)) if is_delayed_id(key_id))
    if logs != chunks:
        yield Problem("log", "delayed", f"{logs} chunks are kept for later, for {chunks} delayed publishes")
