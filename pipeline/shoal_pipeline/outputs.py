"""Writes the folders of jobs: new ones, or in place of one that an earlier run of the same job left, and of nothing
else.

A job writes beside the folder, marks what it wrote, and renames it into place. So a reader finds the old folder or the
new one, never half of one, and a job that fails has changed nothing. On a file system without renames (object stores)
the last step is a copy.

    DIR/_shoal-KIND     the mark; names beginning with _ or . are no data to Spark

Belongs here: what may be replaced, and how. Not here: what is written.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER
from shoal_contract.errors import Conflict
from shoal_pipeline.locations import folder_of, scheme_of
from shoal_slice_node.storage.data_folder import OWNER_FILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENTRIES: dict[str, str] = {
    "export": r"part-.*\.parquet",
    "rejects": r"part-.*\.json",
    "census": "intervals|sizes|hottest|places|skew|slices",
    "run": "chunks|manifest|done",
}
"""What the job of each kind of folder makes in it, as a pattern."""

_OF_SPARK = r"_SUCCESS|_temporary|\..*\.crc"
_OF_SHOAL = ("local-cluster.json", STORE_FOLDER, JOURNAL_FOLDER, OWNER_FILE)
"""Names that a node's data folder, or a local cluster's, has."""


def mark_of(kind: str) -> str:
    return f"_shoal-{kind}"


def check_replaceable(path: str, kind: str, names: Iterable[str] | None, overwrite: str | None) -> None:
    """Raises Conflict unless a job may put a new folder at `path`.

    `names`: the names in the folder; None: nothing is there. `overwrite`: the option that allows to replace an earlier
    job's folder; "" where that is allowed already, None where it never is.
    """
    found = sorted(names or ())
    if not found:
        return
    data = [name for name in _OF_SHOAL if name in found]
    if data:
        raise Conflict(f"{path} holds data of a slice node or cluster (it has {data[0]}): nothing is replaced there")
    foreign = [name for name in found if not re.fullmatch(f"{ENTRIES[kind]}|{_OF_SPARK}|{mark_of(kind)}", name)]
    if foreign or mark_of(kind) not in found:
        what = f"it has {foreign[0]}" if foreign else f"it has no {mark_of(kind)}"
        raise Conflict(
            f"{path} is there and is not what an earlier job of this kind wrote ({what}): nothing was touched; choose"
            " another folder",
            subject=path,
        )
    if overwrite is None:
        raise Conflict(f"{path} is there already: choose another folder, or remove it", subject=path)
    if overwrite:
        raise Conflict(f"{path} is there already: {overwrite} replaces it", subject=path)


def names_here(path: str) -> list[str] | None:
    """Returns the names in a folder of this machine; None if nothing is there, or only Spark can tell (a URL). Raises
    Conflict for a file."""
    if scheme_of(path):
        return None
    folder = folder_of(path, "output")
    if folder.exists() and not folder.is_dir():
        raise Conflict(f"{path} is a file, and should be a folder", subject=path)
    return [one.name for one in folder.iterdir()] if folder.is_dir() else None


class Outputs:
    """Makes folders through Hadoop's file systems, as Spark itself sees them: local, hdfs:, s3a: and so on."""

    def __init__(self, session: SparkSession) -> None:
        context: Any = session.sparkContext
        self._paths = context._jvm.org.apache.hadoop.fs
        self._settings = context._jsc.hadoopConfiguration()

    def names(self, path: str) -> list[str] | None:
        """Returns the names at `path`; None: nothing is there."""
        files, at = self._open(path)
        if not files.exists(at):
            return None
        return [str(one.getPath().getName()) for one in files.listStatus(at)]

    def mark(self, path: str, kind: str) -> None:
        """Marks a folder as one of this kind."""
        files, at = self._open(f"{path}/{mark_of(kind)}")
        files.create(at, True).close()

    def write(self, path: str, kind: str, overwrite: str | None, write: Callable[[str], None]) -> None:
        """Puts a folder at `path` that `write` makes under another name. Raises Conflict as `check_replaceable`
        does."""
        check_replaceable(path, kind, self.names(path), overwrite)
        beside = f"{path.rstrip('/')}.new-{secrets.token_hex(4)}"
        try:
            write(beside)
            self.mark(beside, kind)
            # Checked once more: a folder may have come there meanwhile.
            check_replaceable(path, kind, self.names(path), overwrite)
            self._put(beside, path)
        except BaseException:
            with suppress(Exception):  # The first error is the one to report.
                self._remove(beside)
            raise

    def _put(self, beside: str, path: str) -> None:
        if self.names(path) is None:
            self._rename(beside, path)
            return
        old = f"{path.rstrip('/')}.old-{secrets.token_hex(4)}"
        self._rename(path, old)
        self._rename(beside, path)
        self._remove(old)

    def _rename(self, path: str, to: str) -> None:
        files, at = self._open(path)
        if not files.rename(at, self._paths.Path(to)):
            raise Conflict(f"{path} cannot be renamed to {to}", subject=path)

    def _remove(self, path: str) -> None:
        files, at = self._open(path)
        files.delete(at, True)

    def _open(self, path: str) -> tuple[Any, Any]:
        at = self._paths.Path(path)
        return at.getFileSystem(self._settings), at


def check_report(file: Path) -> None:
    """Raises Conflict for a file that is not a census's report."""
    if file.exists() and not (file.is_file() and file.read_bytes()[:400].find(b"<title>Shoal census</title>") >= 0):
        raise Conflict(f"{file} is there and is no report of a census: nothing was touched", subject=str(file))
