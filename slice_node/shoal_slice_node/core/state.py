"""One slice's state: the tables, and the few values of `meta` that are read with every request. No decisions here."""

from __future__ import annotations

from zlib import crc32

from shoal_contract.errors import InvalidName, NotOwner, ShoalError
from shoal_contract.limits import NAME_BYTES_MAX, PARTITIONS_MAX
from shoal_contract.names import DIRECT_PREFIX, check_name, show
from shoal_slice_node.core.counters import Counters
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.kept import Kept
from shoal_slice_node.core.queues import Queue
from shoal_slice_node.core.rows import ids
from shoal_slice_node.core.rows.key_row import KeyRow, decode_key, encode_key
from shoal_slice_node.core.rows.small_rows import (
    BOUND_BACK,
    CANDIDATE,
    NEXT_QUEUE,
    OWNED,
    RECLAIM_KEY,
    PartitionRow,
    decode_owned,
    decode_partition,
    encode_owned,
    encode_partition,
)
from shoal_slice_node.core.tables import Tables
from shoal_slice_node.core.watch import Watch

PREFIXES = tuple(partition.to_bytes(2, "big") for partition in range(PARTITIONS_MAX))
_AT = DIRECT_PREFIX[0]


class State:
    """`effects` is where the record being applied reports, `lsn` its number; the engine sets both for each record.

    `owned[p]` is 1 where this slice owns partition p; all zero until the first OWNERSHIP record.
    """

    def __init__(self, tables: Tables, watch: Watch) -> None:
        self.tables = tables
        self.watch = watch
        self.kept = Kept(tables)
        self.counters = Counters()
        self.effects = Effects()
        self.lsn = 0
        self.map_version = 0
        self.owned = b"\x00"
        self.partitions = 1
        row = tables.meta.get(OWNED)
        if row is not None:
            self._take_owned(*decode_owned(row))

    def _take_owned(self, map_version: int, owned: bytes) -> None:
        self.map_version = map_version
        self.owned = owned
        self.partitions = len(owned)

    def set_owned(self, map_version: int, owned: bytes) -> None:
        self.tables.meta.put(OWNED, encode_owned(map_version, owned))
        self._take_owned(map_version, owned)

    # Keys.

    def full_name(self, key: bytes) -> bytes:
        """partition | name, of any key that this slice owns. Raises InvalidName, NotOwner."""
        limit = NAME_BYTES_MAX + 1 if key[:1] == DIRECT_PREFIX else NAME_BYTES_MAX
        if not 0 < len(key) <= limit:
            check_name(key, "key")
        partition = crc32(key) % self.partitions
        if not self.owned[partition]:
            raise self.not_owner(key)
        return PREFIXES[partition] + key

    def unchecked_name(self, key: bytes) -> bytes:
        """As `full_name`, of a key that may be another slice's: then there is no row under it."""
        return PREFIXES[crc32(key) % self.partitions] + key

    def bindable_name(self, key: bytes) -> bytes:
        """As `full_name`; a direct key is reserved."""
        if key[:1] == DIRECT_PREFIX:
            raise InvalidName(f"key {show(key)} begins with @: reserved for direct keys", subject=show(key))
        return self.full_name(key)

    def bindable_names(self, keys: list[bytes]) -> list[bytes]:
        """As `bindable_name` for each: the hot path of binds, without a call for each key."""
        partitions, owned, prefixes = self.partitions, self.owned, PREFIXES
        names = []
        for key in keys:
            partition = crc32(key) % partitions
            if not key or key[0] == _AT or len(key) > NAME_BYTES_MAX or not owned[partition]:
                self.bindable_name(key)
            names.append(prefixes[partition] + key)
        return names

    def not_owner(self, key: bytes) -> ShoalError:
        version = self.map_version
        return NotOwner(
            f"key {show(key)} is not owned by this slice at map version {version}",
            subject=show(key),
            map_version=version,
        )

    def create_key(self, full_name: bytes) -> bytes:
        """The new key's row."""
        tables = self.tables
        prefix = full_name[:2]
        number, floor = decode_partition(tables.partition.get(prefix))
        key_id = ids.key_id(int.from_bytes(prefix, "big"), number)
        row = encode_key(KeyRow(key_id, floor + 1, floor + 1, 0))
        tables.partition.put(prefix, encode_partition(PartitionRow(number + 1, floor)))
        tables.key.insert(full_name, row)
        tables.key_name.insert(key_id, full_name)
        return row

    def key_by_id(self, key_id: bytes) -> tuple[bytes, KeyRow] | None:
        """(full name, row), or None if it vanished."""
        full_name = self.tables.key_name.get(key_id)
        if full_name is None:
            return None
        row = self.tables.key.get(full_name)
        assert row is not None, f"key {key_id.hex()} has a name but no row"
        return full_name, decode_key(row)

    def vanish_if_empty(self, full_name: bytes, key: KeyRow) -> bool:
        """A key without bindings and backlog leaves only its partition's floor: nobody needs its log."""
        tables = self.tables
        if tables.binding.count(key.id) or tables.ended.count(key.id):
            return False
        if key.low < key.head:
            self.kept.trimmed(key, key.head)
            tables.log.trim(key.id, key.low, key.head)
        tables.key.delete(full_name)
        tables.key_name.delete(key.id)
        if tables.reclaim.get(BOUND_BACK + key.id) is not None:
            tables.reclaim.delete(BOUND_BACK + key.id)
        partition = decode_partition(tables.partition.get(full_name[:2]))
        if key.head - 1 > partition.floor:
            tables.partition.put(full_name[:2], encode_partition(partition._replace(floor=key.head - 1)))
        return True

    def add_member(self, key_id: bytes, queue_id: bytes) -> None:
        self.tables.binding.add(key_id, queue_id)

    def remove_member(self, key_id: bytes, queue_id: bytes) -> None:
        if self.tables.binding.remove(key_id, queue_id):
            self.put_reclaim(RECLAIM_KEY + key_id, CANDIDATE)

    def remove_ended(self, key_id: bytes, queue_id: bytes) -> None:
        tables = self.tables
        tables.ended.remove(key_id, queue_id)
        if not (tables.ended.count(key_id) or tables.binding.count(key_id)):
            self.put_reclaim(RECLAIM_KEY + key_id, CANDIDATE)

    def put_reclaim(self, row_key: bytes, row: bytes) -> None:
        self.tables.reclaim.put(row_key, row)
        self.effects.reclaim.append(row_key)

    def bound_back(self, key_id: bytes) -> None:
        """A binding needs messages from below the head again: a trim that was decided before may not hold."""
        self.tables.reclaim.put(BOUND_BACK + key_id, self.lsn.to_bytes(8, "big"))

    # Queues.

    def load_queue(self, name: bytes) -> Queue | None:
        queue_id = self.tables.queue_by_name.get(name)
        return None if queue_id is None else self.load_queue_by_id(queue_id)

    def load_queue_by_id(self, queue_id: bytes) -> Queue | None:
        """None: dropped since."""
        row = self.tables.queue.get(queue_id)
        return None if row is None else Queue.decode(self.tables, queue_id, row)

    def create_queue(self, name: bytes, expires_after_s: int) -> Queue:
        queue = Queue(self.tables, b"", name, expires_after_s)
        self.place_queue(queue)
        queue.save()
        return queue

    def place_queue(self, queue: Queue) -> None:
        """Gives a new queue its id and its name's row; the caller saves it."""
        meta = self.tables.meta
        row = meta.get(NEXT_QUEUE)
        number = 1 if row is None else int.from_bytes(row, "big")
        meta.put(NEXT_QUEUE, (number + 1).to_bytes(8, "big"))
        queue.id = ids.queue_id(number)
        self.tables.queue_by_name.insert(queue.name, queue.id)
        if queue.name in self.watch.awaited:
            self.effects.created.append((queue.name, queue.id))
