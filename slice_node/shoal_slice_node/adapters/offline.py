"""Checks a stopped node's folder: journal, checkpoint, and what a start would make of both. Changes nothing.

Belongs here: opening both read-only and replaying in memory. Not here: the invariants (core/check), the command line.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from shoal_contract.errors import Conflict, Corrupt, OutOfRange
from shoal_slice_node.adapters.data_folder import JOURNAL_FOLDER, STORE_FOLDER
from shoal_slice_node.adapters.files import DiskFiles
from shoal_slice_node.adapters.journal_reader import find_tail, list_segments, read_records
from shoal_slice_node.adapters.limits import PROBLEMS_MAX
from shoal_slice_node.adapters.lmdb_tables import LmdbBase
from shoal_slice_node.adapters.walked_base import PROGRESS_EVERY, Progress, WalkedBase
from shoal_slice_node.core.check import check_tables
from shoal_slice_node.core.delta import Delta
from shoal_slice_node.core.engine import Engine
from shoal_slice_node.core.problem import Problem
from shoal_slice_node.core.tables import Tables

_COUNTED = ("queue", "key", "binding", "log", "producer")


def _tell_nobody(phase: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class CheckReport:
    """`rows`: after replay, by table. `problems`: at most PROBLEMS_MAX of each pass."""

    checkpoint_lsn: int
    first_lsn: int
    last_lsn: int
    replayed: int
    rows: dict[str, int]
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        return not self.problems


def check_path(path: Path, progress: Progress = _tell_nobody) -> CheckReport:
    """`path`: a node's data folder. Walks the checkpoint, then the same with the journal's tail over it.

    `progress(phase, done, total)` hears now and then how far a phase is, in rows or records; the total is a guess.

    Raises Conflict if a node has it open, Corrupt if checkpoint or journal cannot be read at all.
    """
    folder = path / STORE_FOLDER
    if not (folder / "owner").is_file():
        raise Corrupt(f"{path} is no slice node's data: it has no {STORE_FOLDER}/owner", subject=str(path))
    with (folder / "owner").open("rb") as owner:
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"{folder} is in use by process {owner.read().decode().strip()}", subject=str(path)
            ) from None
        base = LmdbBase(folder)
        try:
            return _check(path / JOURNAL_FOLDER, base, progress)
        finally:
            base.close()


def _check(journal: Path, base: LmdbBase, progress: Progress) -> CheckReport:
    walked = WalkedBase(base, progress)
    tables = Delta(walked)
    walked.begin("checkpoint")
    problems = list(islice(check_tables(tables), PROBLEMS_MAX))
    files = DiskFiles()
    segments = list_segments(files, journal) if journal.is_dir() else []
    if not segments:
        problems.append(Problem("journal", str(journal), "has no segments"))
        return CheckReport(base.lsn, 0, 0, 0, _rows(tables), tuple(problems))
    engine = Engine(tables)
    replayed, first_lsn = 0, segments[0].first_lsn
    next_lsn = find_tail(files, segments).next_lsn
    if not first_lsn - 1 <= base.lsn < next_lsn:
        text = f"checkpoint {base.lsn} is not within the journal, {first_lsn} to {next_lsn - 1}"
        problems.append(Problem("journal", str(journal), text))
    else:
        try:
            for record in read_records(files, segments, first_lsn, next_lsn):
                if record.lsn > base.lsn:
                    engine.apply(record)
                    replayed += 1
                if record.lsn % PROGRESS_EVERY == 0:
                    progress("journal", record.lsn - first_lsn, next_lsn - first_lsn)
        except (Corrupt, OutOfRange) as error:
            problems.append(Problem("journal", str(journal), str(error)))
        if replayed:
            walked.begin("both together")
            problems += islice(check_tables(tables, candidates_known=False), PROBLEMS_MAX)
    walked.begin("counting")
    return CheckReport(base.lsn, first_lsn, next_lsn - 1, replayed, _rows(tables), tuple(problems))


def _rows(tables: Tables) -> dict[str, int]:
    return {table: _count(getattr(tables, table).scan()) for table in _COUNTED}


def _count(rows: Iterator[object]) -> int:
    return sum(1 for _ in rows)
