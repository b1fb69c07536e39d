"""Walks every invariant of one slice's tables, one row at a time: memory does not grow with the store.

Queues' bindings and keys' members are compared by looking up every binding of every queue among its key's members, and
then by their totals. Entries are distinct, so equal totals leave no member without a binding.

Belongs here: the walk, and small tables. Not here: queues (queues), keys and logs (keys).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from shoal_contract.limits import PRODUCER_BYTES
from shoal_slice_node.core.invariants.due import check_due
from shoal_slice_node.core.invariants.farewells import check_farewells
from shoal_slice_node.core.invariants.keys import check_keys
from shoal_slice_node.core.invariants.problem import Problem
from shoal_slice_node.core.invariants.queues import check_queues
from shoal_slice_node.core.rows.ids import ID_BYTES
from shoal_slice_node.core.rows.producer_row import answer_key, decode_producer
from shoal_slice_node.core.rows.small_rows import (
    ACKS_CUT,
    HINT,
    IN_PART,
    KEPT,
    OWNED,
    RECLAIM_QUEUE,
    TIME,
    TRIMS_HELD,
    decode_owned,
)
from shoal_slice_node.core.tables.tables import Tables


def check_tables(tables: Tables, local_known: bool = True) -> Iterator[Problem]:
    """Yields every problem found. The tables must not change meanwhile.

    `local_known`: the node's own tables are of the same moment as the others: `local_hints` has each key that lost its
    last binding, and `local_totals`, where it has a row, says what the logs keep. This is true of a checkpoint and of
    memory tables, but not of a delta: a checkpoint writes these rows.
    """
    yield from _readable("queue", check_queues(tables))
    yield from _readable("key", check_keys(tables, local_known))
    yield from _readable("due", check_due(tables))
    yield from _readable("farewell", check_farewells(tables))
    yield from _readable("producer", _check_producers(tables))
    yield from _readable("reclaim", _check_reclaim(tables))
    yield from _readable("meta", _check_meta(tables))
    yield from _readable("local", _check_local(tables))


def _readable(table: str, problems: Iterator[Problem]) -> Iterator[Problem]:
    """Yields the problems. A row that cannot be decoded is one too, and ends the walk over these rows."""
    try:
        yield from problems
    except (ArithmeticError, AssertionError, LookupError, RuntimeError, ValueError, struct.error) as error:
        text = f"a row here, or one that it belongs to, cannot be read: {error}. Those after it were not checked"
        yield Problem(table, "a damaged row", text)


def _check_producers(tables: Tables) -> Iterator[Problem]:
    kept: tuple[int, ...] = ()
    producer = b""
    for row_key, row in tables.producer.scan():
        shown = row_key.hex()
        if len(row_key) == PRODUCER_BYTES:
            producer, found = row_key, decode_producer(row)
            kept = found.kept
            if list(kept) != sorted(set(kept)) or kept[-1:] != (found.last,):
                yield Problem("producer", shown, f"keeps answers {kept[:3]}..{kept[-3:]}, its last is {found.last}")
            for sequence in kept:
                if tables.producer.get(answer_key(row_key, sequence)) is None:
                    yield Problem("producer", shown, f"its kept answer {sequence} is not there")
        elif row_key[:PRODUCER_BYTES] != producer or int.from_bytes(row_key[PRODUCER_BYTES:], "big") not in kept:
            yield Problem("producer", shown, "an answer that its producer does not keep")


def _check_reclaim(tables: Tables) -> Iterator[Problem]:
    for row_key, _ in tables.reclaim.scan():
        kind, subject, shown = row_key[:1], row_key[1:], row_key.hex()
        if kind == RECLAIM_QUEUE:
            if tables.queue.get(subject) is not None:
                yield Problem("reclaim", shown, "the queue was not dropped")
        elif kind == TRIMS_HELD:
            if tables.key_name.get(subject) is None:
                yield Problem("reclaim", shown, "holds trims of a key that vanished")
        elif kind != ACKS_CUT:
            yield Problem("reclaim", shown, "of no known kind")


def _check_meta(tables: Tables) -> Iterator[Problem]:
    row = tables.meta.get(OWNED)
    if row is not None and not set(decode_owned(row)[1]) <= {0, 1}:
        yield Problem("meta", OWNED.decode(), "holds other bytes than 0 and 1")


def _check_local(tables: Tables) -> Iterator[Problem]:
    """Checks the form of the node's own rows. What they say is checked with the keys."""
    for row_key, _ in tables.local_totals.scan():
        if row_key not in (KEPT, TIME, IN_PART):
            yield Problem("local_totals", repr(row_key), "of no known name")
    for key_id, row in tables.local_hints.scan():
        if len(key_id) != ID_BYTES or row != HINT:
            yield Problem("local_hints", key_id.hex(), f"is no hint of a key: {row!r}")
