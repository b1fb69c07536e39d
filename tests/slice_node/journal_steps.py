"""Steps of tests with a journal on a disk."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from shoal_contract.journal_record import encode_record
from shoal_slice_node.storage.files import Files
from shoal_slice_node.storage.journal_files import Journal

FOLDER = Path("/journal")
SEGMENT_BYTES = 4096
KIND = 7


class Inline(Executor):
    """Runs at once, in the caller's thread, so that the same seed gives the same steps."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def payload_of(lsn: int) -> bytes:
    return b"%d " % lsn * (lsn * 7 % 60)


def open_journal(files: Files, checkpoint_lsn: int = 0, folder: Path = FOLDER) -> Journal:
    return Journal.open(folder, checkpoint_lsn, files, SEGMENT_BYTES, Inline())


def append(journal: Journal, records: int, epoch: int = 1, frees: bool = False) -> None:
    first, last = journal.next_lsn, journal.next_lsn + records - 1
    data = b"".join(encode_record(KIND, lsn, epoch, 1000, payload_of(lsn)) for lsn in range(first, last + 1))
    journal.append(data, first, last, frees)


def check(journal: Journal, from_lsn: int, acknowledged_lsn: int, batch_max: int) -> None:
    """All that was acknowledged, of the rest one batch at most, and what was written; nothing of a life before."""
    records = list(journal.records(from_lsn))
    epochs = [record.epoch for record in records]
    assert epochs == sorted(epochs), "a record that was cut came back"
    assert [record.lsn for record in records] == list(range(from_lsn, journal.next_lsn))
    assert all(record.payload == payload_of(record.lsn) and record.kind == KIND for record in records)
    assert acknowledged_lsn < journal.next_lsn <= acknowledged_lsn + batch_max + 1
