"""Encodes tables `queue_by_name`, `queue` and `membership`.

    queue_by_name   name                    ->  queue id. The form is the table's (storage/lmdb_layout)
    queue           queue id                ->  header | name | options | bucket 0
    membership      queue id | bucket u32   ->  u16 count | u8 form | bucket

    header   0 form u8 · 1 name length u8 · 2 entries in bucket 0 u16 · 4 further buckets u32 · 8 bindings u32
             12 detail rows u32 · 16 bytes of options u8 (options_row) · 17 incarnation u64: which life of the name,
             0 not known
    bucket   key ids 8 each | starts | cursors
    form     low 4 bits: bytes of each start and cursor: 0 (all are 1), 4, 8; bit 7: cursors are there (else = starts);
             bits 4-6: the layout of the row, header and bucket: 0 is this one

A queue of few keys is one row, so that a login is one row. With more, its entries spread over buckets by linear
hashing (Litwin 1980) of the key id: a bind still reads one bucket, and growing moves one bucket at a time. Who makes
very many keys can choose some that all lie in one bucket: with BUCKET_ENTRIES_MAX it takes no more.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from zlib import crc32

from shoal_contract.limits import FIRST_OFFSET
from shoal_contract.options import DURABLE, QueueOptions
from shoal_slice_node.core.limits import BUCKET_LAYOUT_ENTRIES_MAX
from shoal_slice_node.core.rows.options_row import decode_options

HEADER = Struct(">BBHIIIBQ")
_OPTIONS_BYTES = 16
"""The place of the number of bytes that options take."""

_BUCKET_HEADER = Struct(">HB")
CURSORS = 0x80
_FORMS = {0: "", 4: "I", 8: "Q", CURSORS | 4: "I", CURSORS | 8: "Q"}
FORMS_WITH_CURSORS = frozenset((CURSORS | 4, CURSORS | 8))


def life_of(queue_id: bytes) -> int:
    """Returns the number of a queue's part here, which tells one life of the queue from another."""
    return int.from_bytes(queue_id, "big")


def name_of(row: bytes) -> bytes:
    """Returns the queue's name, from its row of table `queue`."""
    return row[HEADER.size : HEADER.size + row[1]]


def options_of(row: bytes) -> QueueOptions:
    """Returns the queue's options, from its row of table `queue`."""
    if not row[_OPTIONS_BYTES]:
        return DURABLE
    start = HEADER.size + row[1]
    return decode_options(row[start : start + row[_OPTIONS_BYTES]])


def streams_of(row: bytes) -> int:
    """Returns how many bindings and detail rows the queue has in all, from its row of table `queue`."""
    return sum(bindings_and_details(row))


def bindings_and_details(row: bytes) -> tuple[int, int]:
    """Returns how many bindings and how many detail rows the queue has, from its row of table `queue`."""
    _, _, _, _, bindings, details, _, _ = HEADER.unpack_from(row)
    return bindings, details


def incarnation_of(row: bytes) -> int:
    """Returns the queue's incarnation, from its row of table `queue`."""
    found: int = HEADER.unpack_from(row)[7]
    return found


class Bucket:
    """Holds live bindings. `starts`: key id -> start; `cursors`: key id -> cursor, only if it is not the start."""

    __slots__ = ("cursors", "starts")

    def __init__(self, starts: dict[bytes, int], cursors: dict[bytes, int]) -> None:
        self.starts = starts
        self.cursors = cursors

    def cursor(self, key_id: bytes) -> int:
        """Returns a binding's cursor. Raises KeyError if the key is not bound."""
        cursor = self.cursors.get(key_id)
        return self.starts[key_id] if cursor is None else cursor

    def put(self, key_id: bytes, start: int, cursor: int) -> None:
        self.starts[key_id] = start
        if cursor == start:
            self.cursors.pop(key_id, None)
        else:
            self.cursors[key_id] = cursor

    def pop(self, key_id: bytes) -> None:
        del self.starts[key_id]
        self.cursors.pop(key_id, None)


def _layout(count: int, form: int) -> Struct:
    return _kept_layout(count, form) if count <= BUCKET_LAYOUT_ENTRIES_MAX else _new_layout(count, form)


@cache
def _kept_layout(count: int, form: int) -> Struct:
    return _new_layout(count, form)


def _new_layout(count: int, form: int) -> Struct:
    if form not in _FORMS:
        raise ValueError(f"a row of a queue has form {form}; this version reads forms {sorted(_FORMS)}")
    item = _FORMS[form] * count
    return Struct(">" + "8s" * count + item * (2 if form & CURSORS else 1))


def decode_bucket(row: bytes, position: int, count: int, form: int) -> Bucket:
    items = _layout(count, form).unpack_from(row, position)
    if form == 0:
        return Bucket(dict.fromkeys(items, FIRST_OFFSET), {})
    ids, starts = items[:count], items[count : 2 * count]
    if not form & CURSORS:
        return Bucket(dict(zip(ids, starts, strict=True)), {})
    pairs = zip(ids, starts, items[2 * count :], strict=True)
    return Bucket(dict(zip(ids, starts, strict=True)), {key: cursor for key, start, cursor in pairs if cursor != start})


def encode_bucket(bucket: Bucket) -> tuple[int, bytes]:
    """Returns the form and the bytes."""
    starts = bucket.starts
    count = len(starts)
    if not starts:
        return 0, b""
    offsets = list(starts.values())
    form = 0
    if bucket.cursors:
        form = CURSORS
        cursors = bucket.cursors
        offsets += [cursors.get(key, start) for key, start in starts.items()]
    top = max(offsets)
    if top == FIRST_OFFSET and not form:
        return 0, _layout(count, 0).pack(*starts)
    form |= 4 if top < 1 << 32 else 8
    return form, _layout(count, form).pack(*starts, *offsets)


def encode_bucket_row(bucket: Bucket) -> bytes:
    form, data = encode_bucket(bucket)
    return _BUCKET_HEADER.pack(len(bucket.starts), form) + data


def decode_bucket_row(row: bytes) -> Bucket:
    count, form = _BUCKET_HEADER.unpack_from(row)
    return decode_bucket(row, _BUCKET_HEADER.size, count, form)


def entries_of(row: bytes) -> int:
    """Returns how many entries a row of table `membership` has, without a look at them."""
    count: int
    count, _ = _BUCKET_HEADER.unpack_from(row)
    return count


def bucket_key(queue_id: bytes, number: int) -> bytes:
    return queue_id + number.to_bytes(4, "big")


def bucket_number(key_id: bytes, buckets: int) -> int:
    """Returns which of `buckets` >= 1 an entry is in, by linear hashing."""
    if buckets == 1:
        return 0
    level = 1 << (buckets.bit_length() - 1)
    value = crc32(key_id)
    number = value & (2 * level - 1)
    return number if number < buckets else value & (level - 1)


def split_source(buckets: int) -> int:
    """Returns the bucket that gives entries to bucket number `buckets` when this one is added, and gets them back when
    it is removed."""
    return buckets - (1 << (buckets.bit_length() - 1))
