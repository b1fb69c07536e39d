"""Moving a cursor in a row's bytes gives the row that decoding, moving and encoding gives."""

import random

import pytest

from shoal_contract.options import DURABLE, QueueOptions
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.rows.ids import key_id, queue_id
from shoal_slice_node.core.rows.queue_cursor import move_cursor, read_cursor
from shoal_slice_node.core.tables.memory_tables import MemoryTables


@pytest.mark.parametrize("seed", range(60))
def test_cursor_in_place_equals_cursor_decoded(seed: int) -> None:
    rng = random.Random(seed)
    tables = MemoryTables()
    # Options of any length stand before the ids, also of a whole number of ids.
    dead_letter = b"x" * (seed - 20)
    options = QueueOptions(max_deliveries=5, dead_letter=dead_letter) if dead_letter else DURABLE
    queue = Queue(tables, queue_id(7), b"inbox", options)
    top = rng.choice([100, 1 << 31, 1 << 40])
    # Ids of equal bytes at odd distances: a search must not find one across two.
    keys = [key_id(rng.choice([0, 257]), rng.choice([0, 1, 256, 257, 65_793]) + (n << 24)) for n in range(9)]
    for key in keys:
        start = rng.randrange(1, top)
        queue.bucket(key).put(key, start, start + rng.randrange(3))
    queue.bindings = 9
    row = queue.encode()
    for key in keys:
        cursor = queue.bucket(key).cursor(key)
        assert read_cursor(row, key) in (cursor, None)
        moved = move_cursor(row, key, cursor, cursor + 5)
        if moved is None:
            assert not queue.bucket(key).cursors or (cursor + 5) >> 32
            continue
        decoded = Queue.decode(tables, queue.id, moved)
        assert {k: c for k, _, c in decoded.entries()} == {k: (c + 5 if k == key else c) for k, _, c in queue.entries()}
        assert move_cursor(row, key, cursor + 1, cursor + 5) is None, "a done range is not a cursor"
        assert move_cursor(row, key, 1, cursor) == row
    assert move_cursor(row, key_id(9, 9), 1, 2) is None
