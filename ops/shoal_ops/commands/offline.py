"""`shoal check` and `shoal inspect`: read the files of a slice node, without a cluster."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER
from shoal_contract.errors import Conflict, Corrupt
from shoal_ops import output
from shoal_ops.commands.node_folders import nodes_below, nothing_there, part_of_node
from shoal_ops.commands.phases import shown_phases
from shoal_ops.commands.whole_cluster import misplaced
from shoal_ops.exits import DONE, FOUND
from shoal_slice_node.storage.journal_reader import inspect_journal
from shoal_slice_node.storage.journal_segment import SUFFIX
from shoal_slice_node.storage.lmdb_layout import DATA_FILE
from shoal_slice_node.storage.offline import CheckReport, check_path
from shoal_slice_node.storage.store_inspection import inspect_store

OTHER_FORMAT = "format"
"""The subject of errors that say that another version made a store."""

HARMLESS = (
    "nothing is lost, and nothing is to be repaired: the nodes start as they are. The disk returned other bytes than"
    " were written: check it"
)
INCOMPLETE = (
    "what is here is sound, but it is not the whole cluster as it was: `shoal up` will not start from this folder, or"
    " only in parts"
)
WRONG = "something is wrong: keep the files as they are; docs/administration.md says what to do"


def check(path: Path, checksum: bool, as_json: bool) -> int:
    """Checks a node's folder, or a local cluster's folder with all its nodes. Returns the exit code: FOUND if anything
    is wrong.

    Raises Conflict if a node runs on these files.
    """
    sound = harmless = True
    reports: dict[str, CheckReport] = {}
    with shown_phases() as show:
        for node in nodes_below(path):
            try:
                report = check_path(node, show(node.name), checksum)
            except Conflict as error:
                if error.subject == OTHER_FORMAT:
                    raise
                raise Conflict(f"{error.message}: stop it first", subject=error.subject) from None
            except Corrupt as error:
                sound = harmless = False
                _say_unreadable(node, error, as_json)
                continue
            sound &= report.sound
            harmless &= report.harmless == len(report.problems)
            _say_report(node, report, as_json)
            reports[node.name] = report
    faults = misplaced(path, reports)
    if as_json and faults:
        output.say_json({"path": str(path), "sound": False, "problems": faults})
    elif not as_json:
        for fault in faults:
            output.say(f"PROBLEM {fault}")
        if sound and faults:
            output.say(INCOMPLETE)
        else:
            output.say("every invariant holds" if sound else HARMLESS if harmless else WRONG)
    return DONE if sound and not faults else FOUND


def _say_report(node: Path, report: CheckReport, as_json: bool) -> None:
    if as_json:
        output.say_json({"path": str(node), "sound": report.sound, **_as_json(report)})
        return
    rows = ", ".join(f"{count:,} {table}" for table, count in report.rows.items())
    output.say(
        f"{node}: {report.identity}; checkpoint at LSN {report.checkpoint_lsn:,}, journal to {report.last_lsn:,}"
        f" ({report.replayed:,} replayed); rows: {rows}"
    )
    if report.set_aside:
        output.say(f"{node}: set aside by an operator: records {', '.join(map(str, report.set_aside))}")
    if report.checksum:
        _say_checksums(node, report)
    for problem in report.problems:
        output.say(f"{node}: PROBLEM {problem}")


def _as_json(report: CheckReport) -> dict[str, object]:
    named = [one._asdict() for one in report.checksums]
    return {**asdict(report), "checksums": named}


def _say_checksums(node: Path, report: CheckReport) -> None:
    output.say(f"{node}: checksum {report.checksum}, of:")
    rows = [
        (one.table, "-" if one.partition is None else str(one.partition), one.rows, one.checksum)
        for one in report.checksums
    ]
    output.table(("table", "partition", "rows", "checksum"), rows)


def _say_unreadable(node: Path, error: Corrupt, as_json: bool) -> None:
    if as_json:
        output.say_json({"path": str(node), "sound": False, "problems": [["store", error.subject, error.message]]})
    else:
        output.say(f"{node}: PROBLEM {error}")


def journal(path: Path, as_json: bool) -> int:
    """Prints the journal's segments. Returns the exit code: FOUND if a segment is damaged."""
    folder = part_of_node(path, JOURNAL_FOLDER)
    total = len(list(folder.glob(f"*{SUFFIX}")))
    if not total:
        raise nothing_there(path, JOURNAL_FOLDER)
    segments = []
    with shown_phases() as show:
        told = show(str(folder))
        for segment in inspect_journal(folder):
            segments.append(segment)
            told("segments", len(segments), total)
    if as_json:
        output.say_json({"segments": [asdict(segment) for segment in segments]})
    else:
        rows = [
            (
                one.name,
                one.first_lsn,
                one.last_lsn,
                one.records,
                one.batches,
                one.end_position,
                one.set_aside,
                one.state,
            )
            for one in segments
        ]
        output.table(
            ("segment", "first LSN", "last LSN", "records", "batches", "bytes used", "set aside", "state"), rows
        )
    return FOUND if any(segment.state == "damaged" for segment in segments) else DONE


def store(path: Path, as_json: bool) -> None:
    folder = part_of_node(path, STORE_FOLDER)
    if not (folder / DATA_FILE).is_file():
        raise nothing_there(path, STORE_FOLDER)
    found = inspect_store(folder)
    if as_json:
        output.say_json(asdict(found))
        return
    output.facts(
        {"format": found.format, "checkpoint LSN": found.checkpoint_lsn}
        | {"page bytes": found.page_bytes, "used bytes": found.used_bytes, "file bytes": found.file_bytes}
    )
    rows = [(one.name, one.rows, one.pages, one.bytes, one.depth) for one in found.tables]
    output.table(("table", "rows", "pages", "bytes", "depth"), rows)
