"""Checks a stopped node's folder: journal, checkpoint, and the state that a start would build from both. Changes
nothing.

Damage does not end a check: everything that can still be read is checked.
Belongs here: opening both read-only and replaying in memory. Not here: the invariants (core/invariants), the command
line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from shoal_contract.data_folder import JOURNAL_FOLDER
from shoal_contract.data_identity import DataIdentity
from shoal_contract.errors import Corrupt, Malformed
from shoal_contract.journal_record import Record
from shoal_slice_node.core.invariants.checksums import TableChecksum, checksum_of_all, checksums
from shoal_slice_node.core.invariants.problem import Problem
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs.engine import Engine
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_reader import Segment, find_tail, list_segments
from shoal_slice_node.storage.journal_segment import SegmentScan, damaged
from shoal_slice_node.storage.limits import PROBLEMS_MAX
from shoal_slice_node.storage.lmdb_layout import errors_translated
from shoal_slice_node.storage.lmdb_tables import LmdbBase
from shoal_slice_node.storage.stopped_folder import stopped
from shoal_slice_node.storage.walked_base import PROGRESS_EVERY, Progress, WalkedBase

_COUNTED = ("queue", "key", "binding", "log", "producer")


def _tell_nothing(phase: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class CheckReport:
    """Holds the result of a check. `identity`: whose data it is, as the data says; `whose`: the same, None if it does
    not say or cannot be read. `rows`: the number of rows after
    replay, by table. `set_aside`: LSNs of records that an operator set aside. `checksums`: by table and partition,
    of the rows after replay, and `checksum` of them all; empty if they were not requested. `problems`: at most
    PROBLEMS_MAX of each pass. `harmless`: how many of them are damage to the journal below the checkpoint, by which
    nothing is lost."""

    identity: str
    checkpoint_lsn: int
    first_lsn: int
    last_lsn: int
    replayed: int
    set_aside: tuple[int, ...]
    rows: dict[str, int]
    checksum: str
    checksums: tuple[TableChecksum, ...]
    problems: tuple[Problem, ...]
    harmless: int = 0
    whose: DataIdentity | None = None

    @property
    def sound(self) -> bool:
        return not self.problems


def check_path(path: Path, progress: Progress = _tell_nothing, checksum: bool = False) -> CheckReport:
    """Checks `path`, a node's data folder: walks the checkpoint, then the checkpoint with the journal's tail over it.

    `progress(phase, done, total)` is told regularly how far a phase is, in rows or records; the total is an estimate.

    Raises Conflict if a node has it open or it has another format, Corrupt if there is no store that can be opened.
    """
    with stopped(path) as folder:
        base = LmdbBase(folder)
        try:
            return _Check(path, folder, base, progress).run(checksum)
        finally:
            base.close()


class _Check:
    def __init__(self, node: Path, folder: Path, base: LmdbBase, progress: Progress) -> None:
        self._journal = node / JOURNAL_FOLDER
        self._folder = folder
        self._base = base
        self._progress = progress
        self._walked = WalkedBase(base, progress)
        self._files = DiskFiles()
        self._problems: list[Problem] = []
        self._harmless = 0

    def run(self, checksum: bool) -> CheckReport:
        walked, tables = self._walked, Delta(self._walked)
        walked.begin("checkpoint")
        self._walk(tables, local_known=True)
        segments = list_segments(self._files, self._journal) if self._journal.is_dir() else []
        identity = self._identity(segments)
        end_lsn = self._end_lsn(segments)
        replayed, set_aside = self._replay(tables, segments, end_lsn)
        if replayed:
            walked.begin("both together")
            self._walk(tables, local_known=False)
        walked.begin("counting")
        rows = {table: sum(1 for _ in getattr(tables, table).scan()) for table in _COUNTED}
        found: tuple[TableChecksum, ...] = ()
        if checksum:
            walked.begin("checksum")
            found = finish(checksums(tables))
        first_lsn = segments[0].first_lsn if segments else 0
        return CheckReport(
            identity,
            self._base.lsn,
            first_lsn,
            end_lsn - 1,
            replayed,
            tuple(set_aside),
            rows,
            checksum_of_all(found) if found else "",
            found,
            tuple(self._problems),
            self._harmless,
            _decoded(self._base.identity),
        )

    def _problem(self, subject: Path, text: str) -> None:
        self._problems.append(Problem("journal", str(subject), text))

    def _walk(self, tables: Tables, local_known: bool) -> None:
        """Checks the tables and collects problems. A page of the checkpoint that LMDB cannot read ends the walk."""
        try:
            with errors_translated(self._folder):
                self._problems += islice(check_tables(tables, local_known), PROBLEMS_MAX)
        except Corrupt as error:
            self._problems.append(Problem("store", str(error.subject), error.message))

    def _identity(self, segments: list[Segment]) -> str:
        """Returns whose data the store says it is. Reports segments of other data as problems."""
        mine = self._base.identity
        for segment in segments:
            head = SegmentScan(self._files.read(segment.path), segment.first_lsn).head
            if head is not None and head.identity != mine:
                self._problem(segment.path, f"it is of {_shown(head.identity)}, the store of {_shown(mine)}")
        return _shown(mine)

    def _end_lsn(self, segments: list[Segment]) -> int:
        """Returns the LSN after the last record that can be replayed. Reports problems of the journal's ends."""
        lsn = self._base.lsn
        if not segments:
            self._problem(self._journal, "has no segments")
            return lsn + 1
        try:
            end_lsn = find_tail(self._files, segments, lsn).next_lsn
        except Corrupt as error:
            self._problem(Path(error.subject), error.message)
            end_lsn = int(error.value or 0)
        if not segments[0].first_lsn - 1 <= lsn < end_lsn:
            text = f"checkpoint {lsn} is not within the journal, {segments[0].first_lsn} to {end_lsn - 1}"
            self._problem(self._journal, text)
        return end_lsn

    def _replay(self, tables: Tables, segments: list[Segment], end_lsn: int) -> tuple[int, list[int]]:
        """Applies the journal's tail. Returns how many records were applied, and which were set aside."""
        engine, lsn = Engine(tables), self._base.lsn
        replayed, set_aside = 0, []
        expected = lsn + 1
        try:
            for record in self._records(segments, end_lsn):
                if record.lsn % PROGRESS_EVERY == 0:
                    self._progress("journal", record.lsn - segments[0].first_lsn, end_lsn - segments[0].first_lsn)
                if record.lsn != expected:
                    continue  # Below the checkpoint, or above a gap, which is reported already.
                expected += 1
                replayed += 1
                if engine.apply(record).set_aside:
                    set_aside.append(record.lsn)
        except Corrupt as error:
            self._problem(self._journal, error.message)
        return replayed, set_aside

    def _records(self, segments: list[Segment], end_lsn: int) -> Iterator[Record]:
        lsn = self._base.lsn
        ends = [*(segment.first_lsn for segment in segments[1:]), end_lsn]
        for segment, end in zip(segments, ends, strict=False):
            scan = SegmentScan(self._files.read(segment.path), segment.first_lsn, lsn + 1)
            for record in scan:
                if record.lsn >= end:
                    break
                yield record
            for one in scan.skipped:
                self._harmless += 1
                self._problem(
                    segment.path,
                    f"records {one.first_lsn} to {one.end_lsn - 1} are damaged, byte {one.position}; the checkpoint"
                    " has them, so nothing is lost: check the disk, and start the node as it is",
                )
            if scan.expected_lsn < end:
                self._problem(segment.path, damaged(segment.path, scan.position, scan.expected_lsn).message)


def _shown(identity: bytes) -> str:
    try:
        return str(DataIdentity.decode(identity)) if identity else "no one that it names"
    except Malformed as error:
        return error.message


def _decoded(identity: bytes) -> DataIdentity | None:
    try:
        return DataIdentity.decode(identity) if identity else None
    except Malformed:
        return None
