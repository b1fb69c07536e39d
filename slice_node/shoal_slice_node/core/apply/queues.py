"""Loads, changes and saves queues, all within one step: a header, and bindings in one or many buckets."""

from __future__ import annotations

from collections.abc import Iterator

from shoal_contract.options import DURABLE, QueueOptions
from shoal_slice_node.core.limits import BUCKET_ENTRIES_LOW, BUCKET_ENTRIES_MAX, BUCKET_ENTRIES_MEAN
from shoal_slice_node.core.rows.options_row import decode_options, encode_options
from shoal_slice_node.core.rows.queue_row import (
    HEADER,
    Bucket,
    bucket_key,
    bucket_number,
    decode_bucket,
    decode_bucket_row,
    encode_bucket,
    encode_bucket_row,
    entries_of,
    split_source,
)
from shoal_slice_node.core.tables.tables import Tables


class Queue:
    """Holds one queue's part on this slice. Invariant: `bindings` counts the entries of all buckets."""

    __slots__ = (
        "_buckets",
        "_tables",
        "bindings",
        "details",
        "extra_buckets",
        "id",
        "incarnation",
        "name",
        "options",
    )

    def __init__(
        self, tables: Tables, queue_id: bytes, name: bytes, options: QueueOptions, incarnation: int = 0
    ) -> None:
        self._tables = tables
        self.id = queue_id
        self.name = name
        self.options = options
        self.incarnation = incarnation
        self.extra_buckets = 0
        self.bindings = 0
        self.details = 0
        self._buckets: dict[int, Bucket] = {0: Bucket({}, {})}

    @staticmethod
    def decode(tables: Tables, queue_id: bytes, row: bytes) -> Queue:
        form, name_bytes, count, extra, bindings, details, options_bytes, incarnation = HEADER.unpack_from(row)
        name_end = HEADER.size + name_bytes
        end = name_end + options_bytes
        options = decode_options(row[name_end:end]) if options_bytes else DURABLE
        queue = Queue(tables, queue_id, row[HEADER.size : name_end], options, incarnation)
        queue.extra_buckets = extra
        queue.bindings = bindings
        queue.details = details
        queue._buckets[0] = decode_bucket(row, end, count, form)
        return queue

    def encode(self) -> bytes:
        first = self._buckets[0]
        form, data = encode_bucket(first)
        options = encode_options(self.options)
        header = HEADER.pack(
            form,
            len(self.name),
            len(first.starts),
            self.extra_buckets,
            self.bindings,
            self.details,
            len(options),
            self.incarnation,
        )
        return header + self.name + options + data

    def bucket(self, key_id: bytes) -> Bucket:
        """Returns the bucket where this key's binding is or would be."""
        if not self.extra_buckets:
            return self._buckets[0]
        return self._bucket(bucket_number(key_id, self.extra_buckets + 1))

    def numbered_bucket(self, number: int) -> Bucket:
        """Returns the bucket of this number. `number` <= extra_buckets."""
        return self._bucket(number)

    def _bucket(self, number: int) -> Bucket:
        bucket = self._buckets.get(number)
        if bucket is None:
            row = self._tables.membership.get(bucket_key(self.id, number))
            bucket = self._buckets[number] = Bucket({}, {}) if row is None else decode_bucket_row(row)
        return bucket

    def is_full(self, key_id: bytes) -> bool:
        """Returns whether the bucket of this key, which is perhaps bound, has as many entries as it may. Decodes no
        bucket."""
        return self.bindings >= BUCKET_ENTRIES_MAX and self.entries_beside(key_id) >= BUCKET_ENTRIES_MAX

    def entries_beside(self, key_id: bytes) -> int:
        """Returns how many entries the bucket of this key has, which is perhaps bound. Decodes no bucket."""
        return self._entries_in(bucket_number(key_id, self.extra_buckets + 1))

    def _entries_in(self, number: int) -> int:
        bucket = self._buckets.get(number)
        if bucket is not None:
            return len(bucket.starts)
        row = self._tables.membership.get(bucket_key(self.id, number))
        return 0 if row is None else entries_of(row)

    def entries(self) -> Iterator[tuple[bytes, int, int]]:
        """Yields (key id, start, cursor) of every live binding. O(bindings)."""
        for number in range(self.extra_buckets + 1):
            bucket = self._bucket(number)
            cursors = bucket.cursors
            for key_id, start in bucket.starts.items():
                yield key_id, start, cursors.get(key_id, start)

    def save(self) -> None:
        """Writes every row that was read or changed; splits or joins buckets, to keep them at about the mean size."""
        if self.bindings > BUCKET_ENTRIES_MEAN or self.extra_buckets:
            self._balance()
            for number, bucket in self._buckets.items():
                if number:
                    self._tables.membership.put(bucket_key(self.id, number), encode_bucket_row(bucket))
        self._tables.queue.put(self.id, self.encode())

    def forget_buckets(self) -> None:
        """Forgets the buckets that were read or changed, so that the next save does not write them again. The queue
        must be saved."""
        self._buckets = {0: self._buckets[0]}

    def save_bucket(self, key_id: bytes) -> None:
        """Writes the row of this key's bucket, if the bucket has its own row; nothing is split or joined."""
        number = bucket_number(key_id, self.extra_buckets + 1)
        if number:
            self._tables.membership.put(bucket_key(self.id, number), encode_bucket_row(self._buckets[number]))

    def _balance(self) -> None:
        while self.bindings > BUCKET_ENTRIES_MEAN * (self.extra_buckets + 1):
            self._split()
        while self.extra_buckets and self.bindings < BUCKET_ENTRIES_LOW * (self.extra_buckets + 1):
            if not self._may_join():
                return
            self._join()

    def _may_join(self) -> bool:
        """Returns whether one bucket may have the entries of the last one and of the one it was split from."""
        number = self.extra_buckets
        return self._entries_in(number) + self._entries_in(split_source(number)) <= BUCKET_ENTRIES_MAX

    def _split(self) -> None:
        number = self.extra_buckets + 1
        source = self._bucket(split_source(number))
        target = self._buckets[number] = Bucket({}, {})
        for key_id in [key for key in source.starts if bucket_number(key, number + 1) == number]:
            target.put(key_id, source.starts[key_id], source.cursor(key_id))
            source.pop(key_id)
        self.extra_buckets = number

    def _join(self) -> None:
        number = self.extra_buckets
        source = self._bucket(number)
        target = self._bucket(split_source(number))
        for key_id, start in source.starts.items():
            target.put(key_id, start, source.cursor(key_id))
        self.drop_last_bucket()

    def drop_last_bucket(self) -> None:
        """Drops the last bucket. Its entries must have been taken out before."""
        number = self.extra_buckets
        self._buckets.pop(number, None)
        self._tables.membership.delete(bucket_key(self.id, number))
        self.extra_buckets = number - 1

    @property
    def first_bucket(self) -> Bucket:
        return self._buckets[0]

    def last_bucket(self) -> Bucket:
        return self._bucket(self.extra_buckets)
