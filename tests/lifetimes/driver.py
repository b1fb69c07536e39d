"""Drives the core of a node that makes checkpoints, and loses power at any moment: also within a batch of records, and
while the next start replays the journal.

Belongs here: the journal, checkpoints, and what a start makes of them. Not here: what the node is asked (world.py).
"""

from __future__ import annotations

from random import Random

from shoal_contract.journal_record import Record
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.rows.due_row import is_delayed_id
from shoal_slice_node.core.rows.log_row import decode_log
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.turns import finish
from tests.fuzz.node import Base
from tests.slice_node.core_driver import CoreDriver

FREEZES, FREEZES_WITHIN = 0.05, 0.3
"""How likely a start is to freeze what it replayed, behind a record, and at a record within which it may."""


class Driver(CoreDriver):
    """`records`: all that were ever written, so that a replay from the start may be compared. `base`: the checkpoint.
    `frozen_lsn`: what the frozen delta has; None: nothing is frozen."""

    tables: Delta

    def __init__(self) -> None:
        self.base = Base()
        self.epoch = 1
        self.frozen_lsn: int | None = None
        super().__init__(Delta(self.base))
        self.node.key_walk.checkpoint_lsn = lambda: self.base.lsn

    # Checkpoints.

    def freeze(self) -> None:
        if self.frozen_lsn is None:
            self.state.save_local()
            self.tables.freeze()
            self.frozen_lsn = self.state.lsn

    def checkpoint(self) -> None:
        """The frozen delta is written."""
        if self.frozen_lsn is not None:
            emptied = self.base.emptied(self.tables)
            self.base.lsn, self.frozen_lsn = self.frozen_lsn, None
            self.node.reclaims.note_keys(emptied)

    def melt(self) -> None:
        """The frozen delta could not be written."""
        if self.frozen_lsn is not None:
            self.base.melt(self.tables)
            self.frozen_lsn = None

    def check(self) -> None:
        problems = list(check_tables(self.tables, local_known=False))
        assert not problems, "\n".join(map(str, problems))

    # A loss of power.

    def crash(self, random: Random, durable: int = 0) -> None:
        """Loses power, and starts again. The first `durable` records of what is asked are in the journal; none of them
        is applied. Raises AssertionError if a replay does not come to the same tables."""
        applied, batch = self.state.lsn, self.node.commit.gather(self.wall_ms)
        self._compare(self.tables, self._from_the_start(applied))
        self.records += [record for _, record in batch.entries if record is not None][:durable]
        replica = self._started(random)
        again = self._from_the_start(self.records[-1].lsn)
        self._compare(replica.state.tables, again)
        kept, rows = replica.state.kept, [decode_log(row) for id, _, row in self.tables.log.scan() if _is_kept(id)]
        assert (kept.messages, kept.body_bytes) == (sum(r.messages for r in rows), sum(r.body_bytes for r in rows))
        self.epoch += 1
        self.engine, self.state = replica._engine, replica.state
        self.node = replica.lead(self.epoch, self.now_ms)
        self.node.key_walk.checkpoint_lsn = lambda: self.base.lsn
        self.dispatcher, self.puller, self.trimmer = self.node.dispatcher, self.node.puller, self.node.trimmer

    def _from_the_start(self, to_lsn: int) -> Delta:
        replica = Replica(Delta(Base()))
        for record in self.records:
            if record.lsn <= to_lsn:
                replica.apply(record)
        tables = replica.state.tables
        assert isinstance(tables, Delta)
        return tables

    @staticmethod
    def _compare(tables: object, again: Delta) -> None:
        assert isinstance(tables, Delta)
        assert list(finish(checksums(tables))) == list(finish(checksums(again))), "a replay differs"

    def _started(self, random: Random) -> Replica:
        """Replays what the checkpoint lacks. Some starts make checkpoints meanwhile, also within a record where that
        may be, and some of these lose power again: the next one goes on from what the checkpoint has then."""
        while True:
            self.tables, self.frozen_lsn = Delta(self.base), None
            replica = Replica(self.tables, self.base.lsn)
            if all(self._goes_on(replica, record, random) for record in self.records if record.lsn > self.base.lsn):
                return replica

    def _goes_on(self, replica: Replica, record: Record, random: Random) -> bool:
        """Applies a record. Returns False if the power is lost."""
        may_stop = replica.may_stop_within(record)
        if random.random() >= (FREEZES_WITHIN if may_stop else FREEZES):
            replica.apply(record)
            return True
        work, steps = replica.in_steps(record), random.randint(1, 3) if may_stop else 0
        is_whole = any(next(work, _END) is _END for _ in range(steps))
        if not (steps or is_whole):
            finish(work)
            is_whole = True
        lsn = record.lsn if is_whole else replica.save_part()
        replica.state.save_local()
        self.tables.freeze()
        self.base.emptied(self.tables)
        self.base.lsn = lsn
        if random.random() < 0.4:
            return False
        if not is_whole:
            finish(work)
        return True


_END = object()


def _is_kept(key_id: bytes) -> bool:
    return not is_delayed_id(key_id)
