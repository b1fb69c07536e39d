"""Sorted memberships become chunks: without repeats, of one slice each, within the limit."""

from __future__ import annotations

from zlib import crc32

from shoal_contract.limits import IMPORT_OPERATIONS_MAX
from shoal_contract.wire.slice_pb2 import Change
from shoal_pipeline.bulk.packing import Chunk, Membership, pack

Found = list[tuple[bytes, list[bytes], list[int]]]


def opened(chunk: Chunk) -> Found:
    """(queue, keys, starts) of a chunk."""
    assert crc32(chunk.change) == chunk.checksum
    (step,) = Change.FromString(chunk.change).steps
    found: Found = []
    position = 0
    for queue, count in zip(step.imports.queues, step.imports.key_counts, strict=True):
        here = slice(position, position + count)
        found.append((queue, list(step.imports.keys[here]), list(step.imports.starts[here])))
        position += count
    assert (chunk.queues, chunk.memberships) == (len(found), position)
    assert chunk.expected == sum(max(1, len(keys)) for _, keys, _ in found)
    assert chunk.queues + chunk.memberships <= IMPORT_OPERATIONS_MAX
    return found


def test_repeats_are_left_out_and_the_lowest_start_counts() -> None:
    rows: list[Membership] = [
        (0, b"a", None, None),
        (0, b"a", b"k", 3),
        (0, b"a", b"k", 7),
        (0, b"a", b"k", None),
        (0, b"a", b"l", None),
        (0, b"b", None, None),
        (0, b"b", None, None),
    ]
    (chunk,) = pack(rows)
    assert opened(chunk) == [(b"a", [b"k", b"l"], [3, 0]), (b"b", [], [])]


def test_each_slice_has_its_own_chunks() -> None:
    first, second = pack([(0, b"a", b"k", None), (2, b"a", b"k", None), (2, b"a", b"l", None)])
    assert (first.slice, opened(first)) == (0, [(b"a", [b"k"], [])])
    assert (second.slice, opened(second)) == (2, [(b"a", [b"k", b"l"], [])])


def test_a_long_queue_goes_on_in_the_next_chunk() -> None:
    keys = [b"%06d" % number for number in range(3 * IMPORT_OPERATIONS_MAX)]
    chunks = list(pack([(1, b"a", None, None), *((1, b"a", key, None) for key in keys), (1, b"b", b"k", None)]))
    found = [entry for chunk in chunks for entry in opened(chunk)]
    assert {queue for queue, _, _ in found} == {b"a", b"b"}
    assert [key for queue, some, _ in found if queue == b"a" for key in some] == keys
    assert sum(chunk.expected for chunk in chunks) == len(keys) + 1


def test_nothing_gives_no_chunks() -> None:
    assert list(pack([])) == []
