"""Finds out which part of which segment in an archive's folder has which records.

    ROOT/<slice>/<node>/<first lsn, 16 hex digits>.journal

The nodes of one slice hold the same records, cut differently. Their segments are merged, so that each LSN is read once.
Belongs here: names, order, the few bytes that tell a segment's time. Not here: records (records.py).
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from shoal_contract.data_folder import node_in
from shoal_contract.errors import BadCall, Malformed
from shoal_contract.journal_record import HEADER, STX
from shoal_pipeline.limits import HEADS_AT_ONCE_MAX
from shoal_slice_node.storage.journal_segment import BATCH, HEAD, SUFFIX, first_lsn_of

_SEGMENT = re.compile(rf"[0-9a-f]{{16}}{re.escape(SUFFIX)}")


class NothingYet(BadCall):
    """Says that the archive has no records: no slice has closed a segment since it began to archive."""

    def __init__(self) -> None:
        super().__init__("the archive has no records yet: a node archives closed segments, and all when it stops")


@dataclass(frozen=True, slots=True)
class Span:
    """Names the records from_lsn <= lsn < to_lsn of one segment; to_lsn None: all records to its end."""

    slice: str
    path: Path
    first_lsn: int
    from_lsn: int
    to_lsn: int | None


def list_spans(root: Path) -> list[Span]:
    """Returns the spans by slice and LSN; none for an empty folder. Raises BadCall if there is no such folder, or it is
    no archive's.

    Raises Malformed for a file that has the suffix of a segment but not its name: if it were left out, nothing would
    tell that its records are missing.
    """
    if not root.is_dir():
        raise BadCall(f"archive {root} is not a folder", subject=str(root))
    _check_kind(root)
    found = [(path.parent.parent.name, _first_lsn(path), path) for path in root.glob(f"*/*/*{SUFFIX}")]
    spans: list[Span] = []
    for name, segments in groupby(sorted(found), lambda segment: segment[0]):
        longest: dict[int, Path] = {}
        for _, first, path in segments:
            if first not in longest or path.stat().st_size > longest[first].stat().st_size:
                longest[first] = path
        firsts = [*longest, None]
        spans += [
            Span(name, path, first, first, following)
            for (first, path), following in zip(longest.items(), firsts[1:], strict=True)
        ]
    return spans


def _check_kind(root: Path) -> None:
    """Raises BadCall for the folders of nodes, whose journals would look like an archive, and for a part of one."""
    folder = node_in(root)
    if folder is not None:
        raise BadCall(
            f"{root} is no archive: {folder} is a slice node's data folder, whose journal has only the last"
            " changes. Name the folder that the nodes archive to (--archive)",
            subject=str(root),
        )
    whole, *parts = (next(root.glob(f"{way}*{SUFFIX}"), None) for way in ("*/*/", "*/", ""))
    if whole is None and any(parts):
        raise BadCall(f"{root} is a part of an archive: name the folder above the slices' folders", subject=str(root))


def _first_lsn(path: Path) -> int:
    if not _SEGMENT.fullmatch(path.name):
        text = f"{path} has no segment's name, 16 hex digits and {SUFFIX}: move it out of the archive"
        raise Malformed(text, subject=str(path))
    return first_lsn_of(path.name)


def by_slice(spans: Iterable[Span]) -> dict[str, list[Span]]:
    return {name: list(those) for name, those in groupby(spans, attrgetter("slice"))}


def first_time_ms(span: Span) -> int | None:
    """Returns the time of the segment's first record; None if no record can be read."""
    with span.path.open("rb") as file:
        head = file.read(4 << 10)
    position = 0
    while position + HEADER.size <= len(head):
        stx, kind, _, length, _, _, time_ms, _ = HEADER.unpack_from(head, position)
        if stx != STX:
            return None
        if kind not in (HEAD, BATCH):
            return int(time_ms)
        position += HEADER.size + length
    return None


def first_times_ms(spans: Sequence[Span]) -> list[int | None]:
    """Returns `first_time_ms` of each span. Several are read at once, since one after the other takes long on a remote
    file system."""
    with ThreadPoolExecutor(HEADS_AT_ONCE_MAX) as pool:
        return list(pool.map(first_time_ms, spans))


def end_lsn(span: Span) -> int:
    """Returns the LSN after the last record of the span. It goes by headers alone: damage is found when records are
    read."""
    if span.to_lsn is not None:
        return span.to_lsn
    expected, position = span.first_lsn, 0
    if span.path.stat().st_size == 0:
        return expected
    with span.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        while position + HEADER.size <= len(data):
            stx, kind, _, length, lsn, _, _, _ = HEADER.unpack_from(data, position)
            if stx != STX or (kind != HEAD and lsn != expected):
                break
            position += HEADER.size + length
            expected += kind not in (HEAD, BATCH)
    return expected
