"""Rows are read as they were written, and refused where their form is not known. Their bytes: test_golden_bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal_contract.options import QueueOptions
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.detail_row import (
    Detail,
    count_done_offsets,
    cursor_and_end,
    decode_detail,
    encode_detail,
)
from shoal_slice_node.core.rows.ids import key_id, partition_of_id, queue_id
from shoal_slice_node.core.rows.key_row import KeyRow, decode_key, encode_key, head_of
from shoal_slice_node.core.rows.log_row import LogRow, chunk_of, decode_log, encode_log
from shoal_slice_node.core.rows.options_row import decode_options
from shoal_slice_node.core.rows.producer_row import (
    ProducerRow,
    decode_answer,
    decode_producer,
    encode_answer,
    encode_producer,
)
from shoal_slice_node.core.rows.queue_cursor import read_cursor
from shoal_slice_node.core.rows.queue_row import (
    Bucket,
    bucket_number,
    decode_bucket_row,
    encode_bucket_row,
    split_source,
)
from shoal_slice_node.core.rows.small_rows import (
    AcksCut,
    PartitionRow,
    Promise,
    acks_cut_key,
    decode_acks_cut,
    decode_partition,
    decode_trims_held,
    encode_acks_cut,
    encode_partition,
    encode_trims_held,
)
from shoal_slice_node.core.tables.memory_tables import MemoryTables

KEY = key_id(3, 7)
CUT = AcksCut(9, 2, queue_id(1) + KEY, 4)


@pytest.mark.parametrize("data", ["05", "0500", "0503", "05010501", "050109", "05010100003c", "09"])
def test_options_of_an_unknown_form_are_refused(data: str) -> None:
    with pytest.raises(ValueError):
        decode_options(bytes.fromhex(data))


def test_rows_are_read_as_they_were_written() -> None:
    for key in (KeyRow(KEY, 1, 1, 0), KeyRow(KEY, 9, 9, 0), KeyRow(KEY, 9, 4, 77)):
        assert decode_key(encode_key(key)) == key and head_of(encode_key(key)) == key.head
    assert decode_log(encode_log(2, 5, 6, 7, b"c")) == LogRow(2, 5, 6, 7)
    assert chunk_of(encode_log(2, 5, 6, 7, b"c")) == b"c"
    detail = Detail(2, 3, 9, Ranges([(5, 6), (7, 9)]))
    assert decode_detail(encode_detail(detail)) == detail and detail.ended
    assert decode_producer(encode_producer(ProducerRow(4, 5, (3, 4)))) == ProducerRow(4, 5, (3, 4))
    assert decode_partition(encode_partition(PartitionRow(8, 20))) == PartitionRow(8, 20)
    assert decode_acks_cut(acks_cut_key(CUT), encode_acks_cut(CUT)) == CUT
    assert decode_trims_held(encode_trims_held(Promise(2, 3), Promise(4, 5))) == (Promise(2, 3), Promise(4, 5))
    assert partition_of_id(KEY) == 3
    for bucket in (Bucket({}, {}), Bucket({KEY: 1, queue_id(2): 1 << 40}, {KEY: 8})):
        found = decode_bucket_row(encode_bucket_row(bucket))
        assert (found.starts, found.cursors) == (bucket.starts, bucket.cursors)


@pytest.mark.parametrize(
    ("decode", "row"),
    [
        (decode_log, encode_log(2, 5, 6, 7, b"c")),
        (chunk_of, encode_log(2, 5, 6, 7, b"c")),
        (decode_detail, encode_detail(Detail(2, 3))),
        (cursor_and_end, encode_detail(Detail(2, 3))),
        (count_done_offsets, encode_detail(Detail(2, 3))),
        (decode_answer, encode_answer(b"outcome")),
        (decode_producer, encode_producer(ProducerRow(4, 5, (3, 4)))),
        (decode_partition, encode_partition(PartitionRow(8, 20))),
    ],
)
def test_a_form_that_is_not_known_is_refused_by_name(decode: Callable[[bytes], object], row: bytes) -> None:
    with pytest.raises(ValueError, match="has form 9; this version reads form 1"):
        decode(b"\x09" + row[1:])
    with pytest.raises(ValueError, match="has 0 bytes; form 1 has at least"):
        decode(b"")


@pytest.mark.parametrize("form", [0, 6, 255])
@pytest.mark.parametrize("decode", [decode_key, head_of])
def test_a_key_of_a_form_that_is_not_known_is_refused(decode: Callable[[bytes], object], form: int) -> None:
    with pytest.raises(ValueError, match=f"table key has form {form}; this version reads form 1 to 5"):
        decode(bytes([form]) + encode_key(KeyRow(KEY, 9, 4, 77))[1:])


@pytest.mark.parametrize("form", [0x10, 0x14, 0x74, 0x94, 0xC8, 1, 0x85, 0x80])
def test_a_queue_of_a_form_that_is_not_known_is_refused(form: int) -> None:
    queue = Queue(MemoryTables(), queue_id(1), b"q", QueueOptions(60))
    queue.bucket(KEY).put(KEY, 5, 6)
    row = bytes([form]) + queue.encode()[1:]
    with pytest.raises(ValueError, match=f"has form {form}; this version reads"):
        Queue.decode(MemoryTables(), queue_id(1), row)
    assert read_cursor(row, KEY) is None, "it is decoded, and so refused"
    bucket = encode_bucket_row(Bucket({KEY: 5}, {KEY: 6}))
    with pytest.raises(ValueError, match=f"has form {form}; this version reads"):
        decode_bucket_row(bucket[:2] + bytes([form]) + bucket[3:])


def test_linear_hashing_moves_entries_only_between_a_bucket_and_its_split() -> None:
    ids = [key_id(number % 5, number) for number in range(500)]
    for buckets in range(1, 40):
        for entry in ids:
            before, after = bucket_number(entry, buckets), bucket_number(entry, buckets + 1)
            assert before < buckets
            assert after == before or (after == buckets and before == split_source(buckets))


def test_a_queue_of_any_size_finds_each_binding_in_one_bucket() -> None:
    tables = MemoryTables()
    ids = [key_id(number % 7, number) for number in range(1000)]
    queue = Queue(tables, queue_id(1), b"q", QueueOptions())
    queue.save()
    for count, entry in enumerate(ids, 1):
        queue = Queue.decode(tables, queue_id(1), tables.queue.get(queue_id(1)) or b"")
        queue.bucket(entry).put(entry, count, count)
        queue.bindings += 1
        queue.save()
    assert queue.extra_buckets > 10
    for entry in ids[:990]:
        queue = Queue.decode(tables, queue_id(1), tables.queue.get(queue_id(1)) or b"")
        queue.bucket(entry).pop(entry)
        queue.bindings -= 1
        queue.save()
    assert sorted(key for key, _, _ in queue.entries()) == sorted(ids[990:])
    assert queue.extra_buckets == 0 and not list(tables.membership.scan())
