"""Notes binds that begin below their key's head, for acks and trims that were decided before and are applied after.

Such a bind promises messages again. An ack of the same binding that was taken before the bind counts only below the
new start. A trim computed before the bind goes no further than the lowest offset promised since. The notes follow from
records alone, so that replay and replicas make the same ones. Their rows are drawn in core/rows/small_rows.

Acks come in the order in which they were taken, so each record forgets the notes that no later record can need. While
no acks come, the newest BIND_BACKS_NOTED_MAX binds stay noted; acks taken before a forgotten bind are taken again.

For trims each key has two notes: `older`, and `newer` for binds since the last trim that knew all of `older`. So old
promises do not hold off trims for ever, however often other queues bind.
"""

from __future__ import annotations

from collections import deque

from shoal_slice_node.core.apply.records import Acked
from shoal_slice_node.core.limits import BIND_BACKS_FORGOTTEN_MAX, BIND_BACKS_NOTED_MAX
from shoal_slice_node.core.rows.small_rows import (
    ACKS_CUT,
    ACKS_CUT_FORGOTTEN,
    NO_PROMISE,
    TRIMS_HELD,
    AcksCut,
    Promise,
    acks_cut_key,
    decode_acks_cut,
    decode_trims_held,
    encode_acks_cut,
    encode_trims_held,
)
from shoal_slice_node.core.tables.tables import Tables


class BindBacks:
    """Keeps the notes. Invariant: `_noted` holds the rows of ACKS_CUT in their order, `_starts` the same by binding."""

    def __init__(self, tables: Tables, over: BindBacks | None = None) -> None:
        """`over`: the notes of the tables that `tables` lie over, to try a change on. Of these only the last is
        needed, for its number; without it, all are read from the tables."""
        self._meta, self._rows = tables.meta, tables.reclaim
        self._noted: deque[AcksCut] = deque()
        self._starts: dict[bytes, deque[AcksCut]] = {}
        self._forgotten_lsn = 0
        if over is not None:
            if over.last is not None:
                self._remember(over.last)
            return
        self._forgotten_lsn = int.from_bytes(tables.meta.get(ACKS_CUT_FORGOTTEN) or b"", "big")
        for row_key, row in tables.reclaim.scan(ACKS_CUT):
            self._remember(decode_acks_cut(row_key, row))

    @property
    def last(self) -> AcksCut | None:
        """Returns the note of the newest bind."""
        return self._noted[-1] if self._noted else None

    def note(self, lsn: int, queue_id: bytes, key_id: bytes, start: int, cursor: int, head: int) -> None:
        """Notes that the record `lsn` bound the queue from `start`. The binding needs messages from `cursor` on, which
        is below the key's `head`."""
        self._hold_trims(lsn, key_id, cursor)
        if start >= head:
            return  # No acked message is to be seen again.
        last = self.last
        number = last.number + 1 if last is not None and last.lsn == lsn else 0
        cut = AcksCut(lsn, number, queue_id + key_id, start)
        self._rows.insert(acks_cut_key(cut), encode_acks_cut(cut))
        self._remember(cut)
        if len(self._noted) > BIND_BACKS_NOTED_MAX:
            self._forget_oldest()
            self._save_forgotten()

    # Acks.

    def counting(self, acks: list[Acked], taken_at_lsn: int) -> list[Acked] | None:
        """Returns the parts of the acks that count; None: not known, as a bind since `taken_at_lsn` is forgotten."""
        if self._forgotten_lsn > taken_at_lsn:
            return None
        if not self._noted or self._noted[-1].lsn <= taken_at_lsn:
            return acks
        limits: dict[bytes, int | None] = {}
        counting: list[Acked] = []
        for ack in acks:
            binding = ack.queue_id + ack.key_id
            if binding not in limits:
                limits[binding] = self._lowest_start(binding, taken_at_lsn)
            limit = limits[binding]
            if limit is None or ack.to <= limit:
                counting.append(ack)
            elif ack.first < limit:
                counting.append(ack._replace(to=limit))
        return counting

    def _lowest_start(self, binding: bytes, taken_at_lsn: int) -> int | None:
        cuts = self._starts.get(binding, ())
        return min((cut.start for cut in cuts if cut.lsn > taken_at_lsn), default=None)

    def acks_applied(self, taken_at_lsn: int) -> None:
        """Forgets binds up to `taken_at_lsn`, BIND_BACKS_FORGOTTEN_MAX at most: no acks taken before it can come."""
        forgotten = 0
        while self._noted and self._noted[0].lsn <= taken_at_lsn and forgotten < BIND_BACKS_FORGOTTEN_MAX:
            self._forget_oldest()
            forgotten += 1
        if forgotten:
            self._save_forgotten()

    def _remember(self, cut: AcksCut) -> None:
        self._noted.append(cut)
        self._starts.setdefault(cut.binding, deque()).append(cut)

    def _forget_oldest(self) -> None:
        cut = self._noted.popleft()
        cuts = self._starts[cut.binding]
        cuts.popleft()
        if not cuts:
            del self._starts[cut.binding]
        self._rows.delete(acks_cut_key(cut))
        self._forgotten_lsn = cut.lsn

    def _save_forgotten(self) -> None:
        self._meta.put(ACKS_CUT_FORGOTTEN, self._forgotten_lsn.to_bytes(8, "big"))

    # Trims.

    def _hold_trims(self, lsn: int, key_id: bytes, cursor: int) -> None:
        row_key = TRIMS_HELD + key_id
        row = self._rows.get(row_key)
        older, newer = (NO_PROMISE, NO_PROMISE) if row is None else decode_trims_held(row)
        lowest = min(cursor, newer.lowest) if newer.lsn else cursor
        self._rows.put(row_key, encode_trims_held(older, Promise(lsn, lowest)))

    def promised_since(self, key_id: bytes, looked_at_lsn: int) -> int | None:
        """Returns the lowest offset promised after `looked_at_lsn`, or a lower one; None: none was promised. Forgets
        the promises that a trim computed at that LSN knew of."""
        row_key = TRIMS_HELD + key_id
        row = self._rows.get(row_key)
        if row is None:
            return None
        older, newer = decode_trims_held(row)
        if max(older.lsn, newer.lsn) <= looked_at_lsn:
            self._rows.delete(row_key)
            return None
        if older.lsn <= looked_at_lsn:
            self._rows.put(row_key, encode_trims_held(newer, NO_PROMISE))
        return min(promise.lowest for promise in (older, newer) if promise.lsn > looked_at_lsn)

    def key_vanished(self, key_id: bytes) -> None:
        row_key = TRIMS_HELD + key_id
        if self._rows.get(row_key) is not None:
            self._rows.delete(row_key)
