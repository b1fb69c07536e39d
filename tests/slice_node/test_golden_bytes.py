"""Every format on disk and between processes, as fixed bytes: written as such, and read from them.

A change of bytes here is a change of a format: STORAGE.md, "How formats grow", says what it takes. Files and
frames are in test_golden_files, records and wire in tests/contract (test_journal_record, test_golden_wire).

Long because it is one table of all formats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from shoal_contract.data_identity import DataIdentity
from shoal_contract.journal_record import decode_record
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_slice_node.core.apply import records
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.records import (
    Acked,
    ChangeHead,
    Due,
    Expired,
    Farewell,
    Fate,
    Kind,
    Reason,
    Retry,
    Trim,
)
from shoal_slice_node.core.delivery_counts import Counted, DeliveryCounts
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows import (
    detail_row,
    due_row,
    farewell_row,
    history_row,
    key_row,
    log_row,
    options_row,
    producer_row,
    queue_row,
    small_rows,
    transient_row,
)
from shoal_slice_node.core.rows.detail_row import Detail
from shoal_slice_node.core.rows.due_row import DelayedCounts, DelayedRow, DueKey
from shoal_slice_node.core.rows.farewell_row import FarewellCounts, FarewellRow, LetterRow
from shoal_slice_node.core.rows.ids import key_id, number_of_id, queue_id
from shoal_slice_node.core.rows.key_row import KeyRow
from shoal_slice_node.core.rows.log_row import LogRow
from shoal_slice_node.core.rows.options_row import decode_options, encode_options
from shoal_slice_node.core.rows.producer_row import ProducerRow
from shoal_slice_node.core.rows.queue_row import Bucket
from shoal_slice_node.core.rows.small_rows import AcksCut, InPart, PartitionRow, Promise
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.storage.journal_segment import batch_mark, encode_head, read_head, synced_lsn_of

KEY = key_id(3, 7)
QUEUE = queue_id(258)
IDENTITY = DataIdentity("c1", "s01", "n1", "0a" * 16)
CUT = AcksCut(9, 2, QUEUE + KEY, 4)


class Golden(NamedTuple):
    """One value and its bytes, in hexadecimal digits."""

    name: str
    value: object
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], object]
    data: str


def bucket_of(row: bytes) -> tuple[dict[bytes, int], dict[bytes, int]]:
    bucket = queue_row.decode_bucket_row(row)
    return bucket.starts, bucket.cursors


def bucket_row(value: tuple[dict[bytes, int], dict[bytes, int]]) -> bytes:
    return queue_row.encode_bucket_row(Bucket(*value))


def queue_of(row: bytes) -> tuple[bytes, int, int, int, list[tuple[bytes, int, int]]]:
    queue = Queue.decode(MemoryTables(), QUEUE, row)
    return queue.name, queue.options.expires_after_s, queue.incarnation, queue.details, list(queue.entries())


def encode_queue(value: tuple[bytes, int, int, int, list[tuple[bytes, int, int]]]) -> bytes:
    name, expires_after_s, incarnation, details, entries = value
    queue = Queue(MemoryTables(), QUEUE, name, QueueOptions(expires_after_s), incarnation)
    queue.details = details
    for entry in entries:
        queue.bucket(entry[0]).put(*entry)
        queue.bindings += 1
    return queue.encode()


def encode_log_of(value: tuple[LogRow, bytes]) -> bytes:
    header, chunk = value
    return log_row.encode_log(*header[:4], chunk, header.expires_ms)


def log_of(row: bytes) -> tuple[LogRow, bytes]:
    return log_row.decode_log(row), log_row.chunk_of(row)


def encode_mark(value: tuple[int, int]) -> bytes:
    return batch_mark(*value, b"12345678")


def mark_of(data: bytes) -> tuple[int, int | None]:
    found = decode_record(data, 0)
    assert found is not None
    return found[0].lsn, synced_lsn_of(found[0], b"12345678")


ROWS = [
    Golden("key, new", KeyRow(KEY, 1, 1, 0), key_row.encode_key, key_row.decode_key, "010003000000000007"),
    Golden(
        "key, empty", KeyRow(KEY, 9, 9, 0), key_row.encode_key, key_row.decode_key, "0200030000000000070000000000000009"
    ),
    Golden(
        "key, full",
        KeyRow(KEY, 9, 4, 77),
        key_row.encode_key,
        key_row.decode_key,
        "03000300000000000700000000000000090000000000000004000000000000004d",
    ),
    Golden("options, none", QueueOptions(), encode_options, decode_options, ""),
    Golden("options, transient", QueueOptions(expires_after_s=60), encode_options, decode_options, "010000003c"),
    Golden("options, newest", QueueOptions(exclusive="newest"), encode_options, decode_options, "0501"),
    Golden(
        "options, transient and oldest",
        QueueOptions(expires_after_s=60, exclusive="oldest"),
        encode_options,
        decode_options,
        "0502010000003c",
    ),
    Golden(
        "key, configured",
        KeyRow(KEY, 9, 4, 77, KeyOptions(1, 2, 3, 4)),
        key_row.encode_key,
        key_row.decode_key,
        "04000300000000000700000000000000090000000000000004000000000000004d"
        "00000000000000010000000200000000000000030000000000000004",
    ),
    Golden(
        "log, expires",
        (LogRow(2, 5, 6, 7, 8), b"chunk"),
        encode_log_of,
        log_of,
        "0200000002000000050000000000000006000000000000000700000000000000086368756e6b",
    ),
    Golden("history, expires", 8, history_row.encode_mark, history_row.decode_mark, "010000000000000008"),
    Golden(
        "due, publish with a ttl",
        DelayedRow(2, 5, 9, b"\x00\x03k", 8),
        due_row.encode_delayed,
        due_row.decode_delayed,
        "02000000020000000500000009000000000000000800036b",
    ),
    Golden(
        "key, drops the oldest",
        KeyRow(KEY, 9, 4, 77, KeyOptions(1, 2, 3, 4, "drop_oldest")),
        key_row.encode_key,
        key_row.decode_key,
        "05000300000000000700000000000000090000000000000004000000000000004d"
        "0000000000000001000000020000000000000003000000000000000401",
    ),
    Golden(
        "queue, no keys",
        (b"q", 60, 9, 0, []),
        encode_queue,
        queue_of,
        "0001000000000000000000000000000005000000000000000971010000003c",
    ),
    Golden(
        "queue, two keys",
        (b"q", 60, 9, 1, [(KEY, 5, 6), (key_id(3, 8), 5, 5)]),
        encode_queue,
        queue_of,
        (
            "8401000200000000000000020000000105000000000000000971010000003c00030000000000070003000000000008000000"
            "05000000050000000600000005"
        ),
    ),
    Golden("membership, firsts", ({KEY: 1}, {}), bucket_row, bucket_of, "0001000003000000000007"),
    Golden("membership, u32", ({KEY: 5}, {}), bucket_row, bucket_of, "000104000300000000000700000005"),
    Golden(
        "membership, u32 cursors", ({KEY: 5}, {KEY: 6}), bucket_row, bucket_of, "00018400030000000000070000000500000006"
    ),
    Golden("membership, u64", ({KEY: 1 << 32}, {}), bucket_row, bucket_of, "00010800030000000000070000000100000000"),
    Golden(
        "membership, u64 cursors",
        ({KEY: 1 << 32}, {KEY: 6}),
        bucket_row,
        bucket_of,
        "000188000300000000000700000001000000000000000000000006",
    ),
    Golden(
        "detail, live",
        Detail(2, 3),
        detail_row.encode_detail,
        detail_row.decode_detail,
        "01000000000000000200000000000000030000000000000000",
    ),
    Golden(
        "detail, ended",
        Detail(2, 3, 9, Ranges([(5, 6)])),
        detail_row.encode_detail,
        detail_row.decode_detail,
        ("0100000000000000020000000000000003000000000000000900000000000000050000000000000006"),
    ),
    Golden(
        "detail, counts",
        Detail(2, 3, 9, Ranges([(5, 6)]), DeliveryCounts([Counted(3, 5, 1), Counted(6, 7, 4)])),
        detail_row.encode_detail,
        detail_row.decode_detail,
        (
            "020000000000000002000000000000000300000000000000090000000100000000000000050000000000000006000000"
            "00000000030000000000000005000000010000000000000006000000000000000700000004"
        ),
    ),
    Golden(
        "options, transient",
        QueueOptions(60),
        options_row.encode_options,
        options_row.decode_options,
        "010000003c",
    ),
    Golden(
        "options, deliveries",
        QueueOptions(60, 30_000, 5, b"dead"),
        options_row.encode_options,
        options_row.decode_options,
        "020000003c000075300000000564656164",
    ),
    Golden(
        "log",
        (LogRow(2, 5, 6, 7), b"chunk"),
        encode_log_of,
        log_of,
        "010000000200000005000000000000000600000000000000076368756e6b",
    ),
    Golden(
        "producer",
        ProducerRow(4, 5, (3, 4)),
        producer_row.encode_producer,
        producer_row.decode_producer,
        "010000000000000004000000000000000500000000000000030000000000000004",
    ),
    Golden("answer", b"outcome", producer_row.encode_answer, producer_row.decode_answer, "016f7574636f6d65"),
    Golden(
        "partition",
        PartitionRow(8, 20),
        small_rows.encode_partition,
        small_rows.decode_partition,
        "0100000000000000080000000000000014",
    ),
    Golden(
        "meta owned",
        (2, b"\x01\x00"),
        lambda value: small_rows.encode_owned(*value),
        small_rows.decode_owned,
        "00000000000000020100",
    ),
    Golden(
        "local_totals",
        (3, 300),
        lambda value: small_rows.encode_kept(*value),
        small_rows.decode_kept,
        "010000000000000003000000000000012c",
    ),
    Golden(
        "local_totals in_part",
        InPart(9, 2, 5),
        small_rows.encode_in_part,
        small_rows.decode_in_part,
        "010000000000000009000000000000000200000005",
    ),
    Golden(
        "reclaim a",
        CUT,
        lambda cut: small_rows.acks_cut_key(cut) + small_rows.encode_acks_cut(cut),
        lambda data: small_rows.decode_acks_cut(data[:13], data[13:]),
        "61000000000000000900000002000000000000010200030000000000070000000000000004",
    ),
    Golden(
        "reclaim b",
        (Promise(2, 3), Promise(4, 5)),
        lambda value: small_rows.encode_trims_held(*value),
        small_rows.decode_trims_held,
        "0000000000000002000000000000000300000000000000040000000000000005",
    ),
]

ROWS.append(
    Golden("transient", 9, transient_row.encode_transient, transient_row.decode_transient, "010000000000000009")
)
RECORDS = [
    Golden(
        "CHANGE",
        (ChangeHead(b"p" * 16, 2, 1), b"data"),
        lambda value: records.encode_change(*value),
        records.decode_change,
        "707070707070707070707070707070700000000000000002000000000000000164617461",
    ),
    Golden(
        "ACKS",
        (4, [Acked(QUEUE, KEY, 2, 3)]),
        lambda value: records.encode_acks(value[1], value[0]),
        records.decode_acks,
        "00000000000000040000000000000102000300000000000700000000000000020000000000000003",
    ),
    Golden(
        "TRIM",
        [Trim(KEY, 2, 3)],
        records.encode_trims,
        lambda data: list(records.decode_trims(data)),
        "000300000000000700000000000000020000000000000003",
    ),
    Golden(
        "RECLAIM",
        [b"k" + KEY, b"q" + QUEUE, small_rows.idle_producer(b"p" * 16, 5)],
        records.encode_reclaim,
        lambda data: list(records.decode_reclaim(data)),
        "096b0003000000000007097100000000000001021970707070707070707070707070707070700000000000000005",
    ),
    Golden(
        "OWNERSHIP",
        (2, b"\x01\x00"),
        lambda value: records.encode_ownership(*value),
        records.decode_ownership,
        "0000000000000002000000020100",
    ),
    Golden(
        "EXPIRE",
        (4, [Expired(QUEUE, b"anna"), Expired(QUEUE, b"")]),
        lambda value: records.encode_expire(value[1], value[0]),
        records.decode_expire,
        "0000000000000004000000000000010204616e6e61000000000000010200",
    ),
    Golden(
        "RETRY",
        (4, [Retry(QUEUE, KEY, 2, 3, 5, Fate.DEAD, Reason.TIMEOUT)]),
        lambda value: records.encode_retries(value[1], value[0]),
        records.decode_retries,
        "00000000000000040000000000000102000300000000000700000000000000020000000000000003000000050102",
    ),
    Golden(
        "DUE",
        (7, [Due(due_row.delayed_key(5, 6), b"anna"), Due(due_row.delayed_key(5, 7, refused=9), b"")]),
        lambda value: records.encode_due(value[1], value[0]),
        lambda payload: (records.due_wall_ms(payload), records.decode_due(payload)),
        "0100000000000000071100040000000000000005700000000000000006616e6e611100000000000000000005760000000000000007",
    ),
    Golden(
        "DUE without a time",
        (0, [Due(due_row.delayed_key(5, 6), b"anna"), Due(b"", b"")]),
        lambda value: records.encode_due(value[1], value[0]),
        lambda payload: (records.due_wall_ms(payload), records.decode_due(payload)),
        "1100040000000000000005700000000000000006616e6e61000000",
    ),
    Golden(
        "FAREWELL",
        (4, [Farewell(b"q" + QUEUE, b"anna", b"room"), Farewell(b"", b"", b"")]),
        lambda value: records.encode_farewells(value[1], value[0]),
        records.decode_farewells,
        "00000000000000040971000000000000010204616e6e610004726f6f6d00000000",
    ),
]

ROWS += [
    Golden(
        "due p",
        DelayedRow(2, 5, 9, b"\x00\x03anna"),
        due_row.encode_delayed,
        due_row.decode_delayed,
        "010000000200000005000000090003616e6e61",
    ),
    Golden(
        "due p, its key",
        DueKey(5, b"p", 6),
        lambda value: due_row.delayed_key(value.time_ms, value.number),
        due_row.decode_due_key,
        "0000000000000005700000000000000006",
    ),
    Golden(
        "meta delayed",
        DelayedCounts(4, 2, 9),
        due_row.encode_counts,
        due_row.decode_counts,
        "000000000000000400000000000000020000000000000009",
    ),
    Golden(
        "log, the id of a delayed chunk", 7, due_row.delayed_id, lambda data: number_of_id(data), "ffff000000000007"
    ),
    Golden(
        "farewell q",
        FarewellRow(60, 9, b"room", b"chunk"),
        farewell_row.encode_farewell,
        farewell_row.decode_farewell,
        "010000003c00000000000000090004726f6f6d6368756e6b",
    ),
    Golden("farewell q, its key", QUEUE, farewell_row.queue_key, farewell_row.queue_of, "710000000000000102"),
    Golden(
        "farewell l",
        LetterRow(b"p" * 16, b"room", b"chunk"),
        farewell_row.encode_letter,
        farewell_row.decode_letter,
        "02707070707070707070707070707070700004726f6f6d6368756e6b",
    ),
    Golden(
        "farewell l, its key",
        (9, 2),
        lambda value: farewell_row.letter_key(*value),
        farewell_row.decode_letter_key,
        "6c000000000000000900000002",
    ),
    Golden(
        "meta farewells",
        FarewellCounts(2, 9),
        farewell_row.encode_counts,
        farewell_row.decode_counts,
        "00000000000000020000000000000009",
    ),
]

JOURNAL = [
    Golden(
        "identity",
        IDENTITY,
        DataIdentity.encode,
        DataIdentity.decode,
        (
            "7b22636c75737465725f6964223a20226331222c2022696e6361726e6174696f6e223a20223061306130613061306130"
            "613061306130613061306130613061306130613061222c20226e6f6465223a20226e31222c2022736c696365223a2022"
            "733031227d"
        ),
    ),
    Golden(
        "head",
        (b"12345678", b"identity", 48),
        lambda value: encode_head(*value[:2]),
        lambda data: tuple(read_head(data) or ()),
        "02ff0000100000000000000000000000000000000000000000000000049e427831323334353637386964656e74697479",
    ),
    Golden(
        "mark",
        (5, 4),
        encode_mark,
        mark_of,
        ("0200000010000000050000000000000000000000000000000000000098f6e39f04000000000000003132333435363738"),
    ),
]

GOLDEN = [*ROWS, *RECORDS, *JOURNAL]


@pytest.mark.parametrize("golden", GOLDEN, ids=[golden.name for golden in GOLDEN])
def test_a_value_is_written_as_these_bytes_and_read_from_them(golden: Golden) -> None:
    assert golden.encode(golden.value).hex() == golden.data
    assert golden.decode(bytes.fromhex(golden.data)) == golden.value


def test_kinds_letters_and_names_stay_what_they_are() -> None:
    """They are the forms of what they name."""
    kinds = {kind.name: kind.value for kind in Kind}
    assert kinds == {
        "CHANGE": 1,
        "ACKS": 2,
        "TRIM": 3,
        "RECLAIM": 4,
        "OWNERSHIP": 5,
        "EXPIRE": 6,
        "RETRY": 7,
        "DUE": 8,
        "FAREWELL": 9,
    }
    assert {fate.name: fate.value for fate in Fate} == {"AGAIN": 0, "DEAD": 1, "SENT": 2}
    assert {why.name: why.value for why in Reason} == {"NACK": 1, "TIMEOUT": 2, "LEFT": 3}
    letters = (small_rows.RECLAIM_KEY, small_rows.RECLAIM_QUEUE, small_rows.ACKS_CUT, small_rows.TRIMS_HELD)
    assert (*letters, small_rows.RECLAIM_PRODUCER, small_rows.RECLAIM_ENDED) == (b"k", b"q", b"a", b"b", b"p", b"e")
    names = (small_rows.NEXT_QUEUE, small_rows.OWNED, small_rows.EPOCH, small_rows.ACKS_CUT_FORGOTTEN)
    assert names == (b"next_queue", b"owned", b"epoch", b"acks_cut")
    assert small_rows.LEFT_OUT_AT == b"left_out"
    assert (small_rows.KEPT, small_rows.TIME, small_rows.HINT) == (b"kept", b"time", b"\x01")
    assert (farewell_row.FAREWELLS, farewell_row.QUEUE, farewell_row.LETTER) == (b"farewells", b"q", b"l")
    assert (due_row.DELAYED, due_row.PUBLISH, history_row.ROW) == (b"delayed", b"p", b"\x01")
    assert (due_row.MESSAGE_EXPIRES, due_row.MESSAGE_EXPIRES_ROW, history_row.EXPIRING) == (b"x", b"\x01", b"\xff\xff")
