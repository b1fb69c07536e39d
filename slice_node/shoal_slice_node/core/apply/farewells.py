"""Keeps the farewell of each queue that has one, and says it: publishes it, and then it is gone.

The leader decides when (core/dispatch/farewells.py): nothing has consumed the queue for long enough. A FAREWELL record
says it, or an EXPIRE record with which the queue ends. Where another slice owns the key, the record makes a letter of
it, a row of the same table. The leader brings it there, and the next FAREWELL record takes the letter away. So what was
decided is never undone, and however often a letter is sent, its producer publishes it once.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct

from shoal_contract.chunk import measure_chunk
from shoal_contract.errors import ResourceExhausted
from shoal_contract.limits import PRODUCER_BYTES
from shoal_contract.names import direct_key
from shoal_slice_node.core.apply.binds import no_such_queue
from shoal_slice_node.core.apply.publishes import publish
from shoal_slice_node.core.apply.records import decode_farewells
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import APPLIED_PER_STEP, FAREWELLS_OF_SLICE_BYTES_MAX
from shoal_slice_node.core.rows.farewell_row import (
    FAREWELLS,
    LETTER,
    FarewellCounts,
    FarewellRow,
    LetterRow,
    decode_counts,
    decode_farewell,
    decode_letter,
    encode_counts,
    encode_farewell,
    encode_letter,
    letter_key,
    queue_key,
    queue_of,
)
from shoal_slice_node.core.rows.queue_row import name_of
from shoal_slice_node.core.turns import Work

_NUMBERS = Struct(">QQI")


def set_farewell(state: State, name: bytes, key: bytes, chunk: bytes, after_s: int) -> None:
    """Gives a queue a farewell, in the place of the one that it has. Raises NotOwner where this slice is not the
    queue's home, NoSuchQueue; ResourceExhausted if farewells take as many bytes as they may."""
    row_key = _row_key(state, name)
    old = state.tables.farewell.get(row_key)
    counts = decode_counts(state.tables.meta.get(FAREWELLS))
    rows, taken = counts.rows + 1, counts.message_bytes + len(key) + len(chunk)
    if old is not None:
        rows, taken = rows - 1, taken - _bytes_of(decode_farewell(old))
    if taken > FAREWELLS_OF_SLICE_BYTES_MAX:
        state.effects.counters.farewells_refused += 1
        raise ResourceExhausted(
            f"farewells of this slice would take {taken} bytes; the limit is {FAREWELLS_OF_SLICE_BYTES_MAX}",
            subject="farewells",
            limit=FAREWELLS_OF_SLICE_BYTES_MAX,
            value=taken,
        )
    state.tables.farewell.put(row_key, encode_farewell(FarewellRow(after_s, state.lsn, key, chunk)))
    _save_counts(state, FarewellCounts(rows, taken))
    state.effects.farewells.append((queue_of(row_key), after_s))


def take_back(state: State, name: bytes) -> None:
    """Takes a queue's farewell back, if it has one. Raises NotOwner, NoSuchQueue."""
    forget_farewell(state, queue_of(_row_key(state, name)))


def _row_key(state: State, name: bytes) -> bytes:
    state.owned_name(direct_key(name))
    queue_id = state.tables.queue_by_name.get(name)
    if queue_id is None:
        raise no_such_queue(state, name)
    return queue_key(queue_id)


def forget_farewell(state: State, queue_id: bytes) -> None:
    """Takes back the farewell of a queue that may have one."""
    row_key = queue_key(queue_id)
    row = state.tables.farewell.get(row_key)
    if row is not None:
        _remove(state, row_key, _bytes_of(decode_farewell(row)))


def say_at_end(state: State, queue_id: bytes, number: int) -> None:
    """Says the farewell of a queue that ends, if it has one. `number`: of the queue in the record."""
    row = state.tables.farewell.get(queue_key(queue_id))
    if row is not None:
        _say(state, queue_id, decode_farewell(row), number)


def apply_farewells(state: State, payload: bytes) -> Work[None]:
    """Applies a FAREWELL record: says the farewells of the queues that it names, except those that were set since the
    leader decided; takes away the letters that are where they belong."""
    decided_lsn, farewells = decode_farewells(payload)
    for number, (row_key, _, _) in enumerate(farewells):
        row = state.tables.farewell.get(row_key)
        if row is not None:
            if row_key[:1] == LETTER:
                _remove(state, row_key, _bytes_of(decode_letter(row)))
            else:
                _say_unless_newer(state, queue_of(row_key), decode_farewell(row), number, decided_lsn)
        if number % APPLIED_PER_STEP == 0:
            yield


def _say_unless_newer(state: State, queue_id: bytes, farewell: FarewellRow, number: int, decided_lsn: int) -> None:
    if farewell.set_lsn > decided_lsn:
        state.effects.farewells.append((queue_id, farewell.after_s))  # Its time begins anew.
    else:
        _say(state, queue_id, farewell, number)


def _say(state: State, queue_id: bytes, farewell: FarewellRow, number: int) -> None:
    """Publishes a farewell, whatever the key's capacity, or makes a letter of it."""
    tables, size = state.tables, _bytes_of(farewell)
    _remove(state, queue_key(queue_id), size)
    state.effects.counters.farewells_said += 1
    key, chunk = farewell.key, farewell.chunk
    if state.owns(key):
        first, _ = publish(state, key, chunk, measure_chunk(chunk), False, state.time_ms, bounded=False)
        state.effects.counters.publishes += bool(first)  # `publish` counts what is not kept.
        state.effects.counters.chunks += 1
        return
    row = tables.queue.get(queue_id)
    name = b"" if row is None else name_of(row)
    # Never the same for two: a slice gives no LSN of an epoch twice, and a queue has one home.
    numbers = _NUMBERS.pack(state.epoch, state.lsn, number)
    producer = sha256(b"farewell|" + numbers + name).digest()[:PRODUCER_BYTES]
    tables.farewell.insert(letter_key(state.lsn, number), encode_letter(LetterRow(producer, key, chunk)))
    counts = decode_counts(tables.meta.get(FAREWELLS))
    _save_counts(state, FarewellCounts(counts.rows + 1, counts.message_bytes + size))
    state.effects.letters = True


def _remove(state: State, row_key: bytes, size: int) -> None:
    state.tables.farewell.delete(row_key)
    counts = decode_counts(state.tables.meta.get(FAREWELLS))
    _save_counts(state, FarewellCounts(counts.rows - 1, counts.message_bytes - size))


def _bytes_of(row: FarewellRow | LetterRow) -> int:
    return len(row.key) + len(row.chunk)


def _save_counts(state: State, counts: FarewellCounts) -> None:
    state.tables.meta.put(FAREWELLS, encode_counts(counts))
