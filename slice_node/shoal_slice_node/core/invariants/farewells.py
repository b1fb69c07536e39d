"""Checks the invariants of farewells, and of those on their way to other slices. Part of `check`."""

from __future__ import annotations

from collections.abc import Iterator

from shoal_contract.chunk import measure_chunk
from shoal_contract.errors import InvalidName, Malformed, TooLarge
from shoal_contract.limits import FAREWELL_BYTES_MAX
from shoal_contract.names import check_key
from shoal_slice_node.core.invariants.problem import Problem
from shoal_slice_node.core.rows.farewell_row import (
    FAREWELLS,
    LETTER,
    QUEUE,
    decode_counts,
    decode_farewell,
    decode_letter,
    decode_letter_key,
    queue_of,
)
from shoal_slice_node.core.tables.tables import Tables


def check_farewells(tables: Tables) -> Iterator[Problem]:
    """Yields the problems of table `farewell`: each farewell has its queue, each holds one message, and their sums are
    right."""
    counts = decode_counts(tables.meta.get(FAREWELLS))
    rows = message_bytes = 0
    for row_key, row in tables.farewell.scan():
        letter, shown = row_key[:1], row_key.hex()
        if letter == QUEUE:
            _, _, key, chunk = decode_farewell(row)
            if tables.queue.get(queue_of(row_key)) is None:
                yield Problem("farewell", shown, "there is no queue with this id")
        elif letter == LETTER:
            decode_letter_key(row_key)
            _, key, chunk = decode_letter(row)
        else:
            yield Problem("farewell", shown, f"is of no known kind: {letter!r}")
            continue
        rows += 1
        message_bytes += len(key) + len(chunk)
        yield from _check_message(shown, key, chunk)
    if (rows, message_bytes) != counts:
        yield Problem("meta", FAREWELLS.decode(), f"says {tuple(counts)}; there are {(rows, message_bytes)}")


def _check_message(shown: str, key: bytes, chunk: bytes) -> Iterator[Problem]:
    try:
        check_key(key)
        messages, _ = measure_chunk(chunk)
    except (InvalidName, Malformed, TooLarge) as error:
        yield Problem("farewell", shown, error.message)
        return
    if messages != 1 or len(chunk) > FAREWELL_BYTES_MAX:
        yield Problem("farewell", shown, f"has {messages} messages in {len(chunk)} bytes")
