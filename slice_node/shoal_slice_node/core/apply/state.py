"""Keeps one slice's state: the tables, and the few values of `meta` that every request reads. It decides nothing."""

from __future__ import annotations

from zlib import crc32

from shoal_contract.errors import NotOwner, ShoalError
from shoal_contract.limits import NAME_BYTES_MAX, PARTITIONS_MAX
from shoal_contract.names import DIRECT_PREFIX, check_key, direct_key
from shoal_contract.options import PLAIN, QueueOptions
from shoal_contract.partition_hash import MAY_HAVE_TAG, hashed_part, partition_of
from shoal_slice_node.core.apply.bind_backs import BindBacks
from shoal_slice_node.core.apply.counters import Counters
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.expiry import forget_expiry
from shoal_slice_node.core.apply.interest import Interest
from shoal_slice_node.core.apply.kept import Kept, trimmed
from shoal_slice_node.core.apply.lookups import key_by_id
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.refusals import Refusals
from shoal_slice_node.core.apply.tail import Tail
from shoal_slice_node.core.limits import KEY_NUMBERS_TRIED_MAX
from shoal_slice_node.core.rows import ids
from shoal_slice_node.core.rows.key_row import KeyRow, decode_key, encode_key
from shoal_slice_node.core.rows.small_rows import (
    EPOCH,
    HINT,
    IN_PART,
    LEFT_OUT_AT,
    NEXT_QUEUE,
    OWNED,
    RECLAIM_KEY,
    TIME,
    InPart,
    PartitionRow,
    decode_in_part,
    decode_owned,
    decode_partition,
    encode_in_part,
    encode_owned,
    encode_partition,
)
from shoal_slice_node.core.rows.transient_row import encode_transient
from shoal_slice_node.core.tables.overlay import overlay
from shoal_slice_node.core.tables.tables import Tables

PREFIXES = tuple(partition.to_bytes(2, "big") for partition in range(PARTITIONS_MAX))
_AT = DIRECT_PREFIX[0]
_INCARNATION_QUEUE_BITS = 40
"""Leaves room for 10^12 queues that a slice makes, and for 16 million leaders."""


class State:
    """Keeps the tables, and what belongs to the record that is being applied: `effects` collects its effects; `lsn`,
    `epoch` and `time_ms` are the record's. The engine sets them for each record. Before the first one `time_ms` is that
    of the newest record which the checkpoint has: record times go on from there, whatever the machine's clock says.

    `owned[p]` is 1 where this slice owns partition p; all zero until the first OWNERSHIP record. `left_out`: something
    of a record was left out, as an operator decided. Later records may name what is not there.
    """

    def __init__(self, tables: Tables, interest: Interest, over: State | None = None) -> None:
        """`over`: the state whose tables `tables` lie over, see `tried`; None: everything is read from the tables."""
        self.tables = tables
        self.interest = interest
        self.kept: Kept = Kept(tables) if over is None else over.kept
        self.tail = Tail()
        self.bind_backs: BindBacks = BindBacks(tables, None if over is None else over.bind_backs)
        self.counters = Counters()
        self.refusals = Refusals()
        self.effects = Effects()
        self.lsn = 0
        self.rows_done = 0
        """How many rows of the DUE record that is being applied are done; 0: none is being applied."""
        self.epoch = int.from_bytes(tables.meta.get(EPOCH) or b"", "big")
        self.time_ms = int.from_bytes(tables.local_totals.get(TIME) or b"", "big")
        self.left_out = tables.meta.get(LEFT_OUT_AT) is not None
        self.map_version = 0
        self.owned = b"\x00"
        self.partitions = 1
        if over is not None:
            self.lsn, self.epoch, self.time_ms = over.lsn, over.epoch, over.time_ms
            self._take_owned(over.map_version, over.owned)
            return
        row = tables.meta.get(OWNED)
        if row is not None:
            self._take_owned(*decode_owned(row))

    def tried(self) -> State:
        """Returns a state that begins as this one, to try a change on: none of its effects is wanted, and what it
        changes is gone with it. Changes neither read nor write `kept`, so both states share it. This one must not
        change meanwhile."""
        return State(overlay(self.tables), Interest(), self)

    def _take_owned(self, map_version: int, owned: bytes) -> None:
        self.map_version = map_version
        self.owned = owned
        self.partitions = len(owned)

    def set_owned(self, map_version: int, owned: bytes) -> None:
        self.tables.meta.put(OWNED, encode_owned(map_version, owned))
        self._take_owned(map_version, owned)
        self.effects.ownership = True

    def begin_epoch(self, epoch: int) -> None:
        """Begins an epoch, with the first record of a new leader."""
        self.tables.meta.put(EPOCH, epoch.to_bytes(8, "big"))
        self.epoch = epoch

    def note_left_out(self) -> None:
        """Notes that something of this record was left out."""
        if not self.left_out:
            self.tables.meta.put(LEFT_OUT_AT, self.lsn.to_bytes(8, "big"))
            self.left_out = True

    # Keys.

    def full_name(self, key: bytes) -> bytes:
        """Returns partition | name, for any key that this slice owns. Raises InvalidName, NotOwner."""
        if not 0 < len(key) <= NAME_BYTES_MAX or key[0] == _AT:
            check_key(key)
        return self.owned_name(key)

    def owned_name(self, key: bytes) -> bytes:
        """Returns the same as `full_name`, for a key with a checked name. Hot: each publish asks. Raises NotOwner."""
        partition = crc32(hashed_part(key) if key[0] in MAY_HAVE_TAG else key) % self.partitions
        if not self.owned[partition]:
            raise self.not_owner(key)
        return PREFIXES[partition] + key

    def unchecked_name(self, key: bytes) -> bytes:
        """Returns the same as `full_name`, for a key that another slice may own: then there is no row under it."""
        return PREFIXES[partition_of(key, self.partitions)] + key

    def owned_names(self, keys: list[bytes]) -> list[bytes]:
        """Returns `owned_name` of each key: the hot path of binds, without a call for each key."""
        partitions, owned, prefixes = self.partitions, self.owned, PREFIXES
        names = []
        for key in keys:
            partition = crc32(hashed_part(key) if key[0] in MAY_HAVE_TAG else key) % partitions
            if not owned[partition]:
                raise self.not_owner(key)
            names.append(prefixes[partition] + key)
        return names

    def owns(self, key: bytes) -> bool:
        """Returns whether this slice owns the key."""
        return bool(self.owned[partition_of(key, self.partitions)])

    def is_home(self, queue: bytes) -> bool:
        """Returns whether this slice owns the queue's direct key."""
        return self.owns(direct_key(queue))

    def not_owner(self, key: bytes) -> ShoalError:
        version, shown = self.map_version, self.refusals.shown(key)
        return NotOwner(
            f"key {shown} is not owned by this slice at map version {version}", subject=shown, map_version=version
        )

    def create_key(self, full_name: bytes, queue: Queue | None = None) -> bytes:
        """Makes a key. Returns its row. `queue`: will be bound to it; numbers of keys for which it has no room are left
        out, so that a bind of a new key is never refused for it."""
        tables = self.tables
        prefix = full_name[:2]
        partition = int.from_bytes(prefix, "big")
        number, floor = decode_partition(tables.partition.get(prefix))
        if queue is not None:
            number = _with_room(queue, partition, number)
        key_id = ids.key_id(partition, number)
        row = encode_key(KeyRow(key_id, floor + 1, floor + 1, 0))
        tables.partition.put(prefix, encode_partition(PartitionRow(number + 1, floor)))
        tables.key.insert(full_name, row)
        tables.key_name.insert(key_id, full_name)
        return row

    def key_by_id(self, key_id: bytes) -> tuple[bytes, KeyRow] | None:
        """Returns (full name, row); None if the key vanished."""
        found = key_by_id(self.tables, key_id)
        return None if found is None else (found[0], decode_key(found[1]))

    def vanish_if_empty(self, full_name: bytes, key: KeyRow) -> bool:
        """Deletes a key that has no bindings, no backlog and no options, with its log, which nothing needs. Only its
        partition's floor stays. Returns whether it did."""
        tables = self.tables
        if tables.binding.count(key.id) or tables.ended.count(key.id):
            return False
        if key.options != PLAIN:
            if key.low < key.head:
                self.effects.advanced.append(key.id)
            return False
        if key.low < key.head:
            self.forget_kept(key, key.head)
            tables.log.trim(key.id, key.low, key.head)
        forget_expiry(self, key.id)
        tables.key.delete(full_name)
        tables.key_name.delete(key.id)
        self.bind_backs.key_vanished(key.id)
        partition = decode_partition(tables.partition.get(full_name[:2]))
        if key.head - 1 > partition.floor:
            tables.partition.put(full_name[:2], encode_partition(partition._replace(floor=key.head - 1)))
        return True

    def forget_kept(self, key: KeyRow, new_low: int) -> None:
        """Notes in the effects what a trim up to `new_low` removes. Must be called before the trim."""
        messages, body_bytes = trimmed(self.tables, key, new_low)
        self.effects.kept_messages -= messages
        self.effects.forgotten_messages += messages
        self.effects.kept_bytes -= body_bytes

    def add_totals(self, effects: Effects) -> None:
        """Adds what an applied record adds to the totals."""
        self.counters.add(effects.counters)
        self.kept.messages += effects.kept_messages
        self.kept.body_bytes += effects.kept_bytes

    def begin_rows(self) -> int:
        """Begins a DUE record. Returns how many of its rows the tables hold already."""
        row = self.tables.local_totals.get(IN_PART)
        found = None if row is None else decode_in_part(row)
        is_this = found is not None and (found.lsn, found.epoch) == (self.lsn, self.epoch)
        self.rows_done = found.rows if found is not None and is_this else 0
        return self.rows_done

    def end_rows(self) -> None:
        """Notes that the tables hold all of a DUE record."""
        self.rows_done = 0
        if self.tables.local_totals.get(IN_PART) is not None:
            self.tables.local_totals.delete(IN_PART)

    def save_part(self) -> None:
        """Writes what is to be known of a record of which the tables hold a part, and adds that to the totals. Must be
        called before the tables are frozen within a record."""
        if self.rows_done:
            self.tables.local_totals.put(IN_PART, encode_in_part(InPart(self.lsn, self.epoch, self.rows_done)))
        self.add_totals(self.effects)
        self.effects.clear_totals()

    def save_local(self) -> None:
        """Writes the node's own rows that a checkpoint needs. Must be called before each freeze of the tables."""
        self.kept.save()
        self.tables.local_totals.put(TIME, self.time_ms.to_bytes(8, "big"))

    def add_member(self, key_id: bytes, queue_id: bytes) -> None:
        self.tables.binding.add(key_id, queue_id)

    def remove_member(self, key_id: bytes, queue_id: bytes) -> None:
        if self.tables.binding.remove(key_id, queue_id):
            self._hint(key_id)

    def remove_ended(self, key_id: bytes, queue_id: bytes) -> None:
        tables = self.tables
        tables.ended.remove(key_id, queue_id)
        if not (tables.ended.count(key_id) or tables.binding.count(key_id)):
            self._hint(key_id)

    def _hint(self, key_id: bytes) -> None:
        """Notes that nothing may be left of a key which no checkpoint may ever see empty."""
        self.tables.local_hints.put(key_id, HINT)
        self.effects.reclaim.append(RECLAIM_KEY + key_id)

    def put_reclaim(self, row_key: bytes, row: bytes) -> None:
        self.tables.reclaim.put(row_key, row)
        self.effects.reclaim.append(row_key)

    # Queues.

    def load_queue(self, name: bytes) -> Queue | None:
        queue_id = self.tables.queue_by_name.get(name)
        return None if queue_id is None else self.load_queue_by_id(queue_id)

    def load_queue_by_id(self, queue_id: bytes) -> Queue | None:
        """Returns the queue; None if it was dropped since."""
        row = self.tables.queue.get(queue_id)
        return None if row is None else Queue.decode(self.tables, queue_id, row)

    def new_incarnation(self, name: bytes) -> int:
        """Returns the incarnation of a queue that is being made: above all that its home gave this name before; 0 if
        this slice is not its home.

        Epochs grow with each leader, even if a slice begins with empty data. Queue numbers grow with each queue.
        """
        return self.epoch << _INCARNATION_QUEUE_BITS | self._next_queue() if self.is_home(name) else 0

    def _next_queue(self) -> int:
        row = self.tables.meta.get(NEXT_QUEUE)
        return 1 if row is None else int.from_bytes(row, "big")

    def create_queue(self, name: bytes, options: QueueOptions, incarnation: int) -> Queue:
        queue = Queue(self.tables, b"", name, options, incarnation)
        self.place_queue(queue)
        queue.save()
        if options.expires_after_s:
            self.renew_transient(queue)
        return queue

    def renew_transient(self, queue: Queue) -> None:
        """Notes that a transient queue was declared or bound now: the time that it may stay without a session begins
        anew."""
        self.tables.transient.put(queue.id, encode_transient(self.lsn))
        self.note_transient(queue)

    def note_transient(self, queue: Queue) -> None:
        """Notes in the effects that a transient queue's time begins anew."""
        self.effects.transients.append((queue.id, queue.options.expires_after_s))
        if queue.name in self.interest.awaited:
            self.effects.created.append((queue.name, queue.id))

    def place_queue(self, queue: Queue) -> None:
        """Gives a new queue its id and writes the row of its name. The caller saves the queue."""
        number = self._next_queue()
        self.tables.meta.put(NEXT_QUEUE, (number + 1).to_bytes(8, "big"))
        queue.id = ids.queue_id(number)
        self.tables.queue_by_name.insert(queue.name, queue.id)
        if queue.name in self.interest.awaited:
            self.effects.created.append((queue.name, queue.id))


def _with_room(queue: Queue, partition: int, number: int) -> int:
    """Returns the first number of a key in the partition, from `number` on, whose bucket of the queue has room."""
    for tried in range(number, number + KEY_NUMBERS_TRIED_MAX):
        if not queue.is_full(ids.key_id(partition, tried)):
            return tried
    return number
