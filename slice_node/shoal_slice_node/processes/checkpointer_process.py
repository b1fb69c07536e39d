"""The checkpointer: a process of its own that owns the store's only write transaction. The main process starts it.

    python -P -m shoal_slice_node.processes.checkpointer_process FOLDER SOCKET_FD LOCK_FD greet|quiet IDENTITY

It ends when the main process's end of the socket closes, after a commit under way. It shares the folder's lock with
that process, so the successor of a killed main process cannot start before this one has ended. Consecutive checkpoints
share one mapping of the file, since mapping pages again costs more than reading them. When idle it lets go of the
mapping and, if it is still large, starts itself anew in place (execv): same process, same sockets, empty heap.

Belongs here: the loop. Not here: writing (storage/checkpoint_writer), the frames (processes/checkpoint_frame).
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import socket
from typing import Any

from shoal_contract.errors import Corrupt, ShoalError
from shoal_slice_node.core.tables.delta_piece import Piece
from shoal_slice_node.processes.checkpoint_frame import COMMIT, DONE, FAILED, READY, encode_frame, receive_frame
from shoal_slice_node.processes.limits import CHECKPOINTER_RESIDENT_BYTES_MAX, IDLE_MS
from shoal_slice_node.storage.checkpoint_writer import CheckpointWriter
from shoal_slice_node.storage.mapped_memory import resident_bytes, resident_bytes_peak
from shoal_slice_node.storage.store_room import StoreRoom


class Gone(Exception):
    """Is raised when the main process has closed its end of the socket."""


def main(arguments: list[str]) -> None:
    folder, socket_fd, lock_fd, mode = Path(arguments[0]), int(arguments[1]), int(arguments[2]), arguments[3]
    os.umask(0o077)
    connection = socket(fileno=socket_fd)
    kept = _Kept(folder)
    try:
        if mode == "greet":
            connection.sendall(_greeting(folder, arguments[4].encode()))
        while True:
            if not select.select([connection], [], [], IDLE_MS / 1000)[0]:
                kept.close()
                if resident_bytes() > CHECKPOINTER_RESIDENT_BYTES_MAX:
                    module = ["-P", "-m", "shoal_slice_node.processes.checkpointer_process"]
                    again = [str(folder), str(socket_fd), str(lock_fd), "quiet", ""]
                    os.execv(sys.executable, [sys.executable, *module, *again])
                select.select([connection], [], [])
            connection.sendall(_checkpoint(kept, connection))
    except (Gone, BrokenPipeError, ConnectionResetError):
        return


class _Kept:
    """Keeps the writer open from one checkpoint to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._room = StoreRoom(folder)
        self._writer: CheckpointWriter | None = None

    def writer(self) -> CheckpointWriter:
        if self._writer is None:
            self._writer = CheckpointWriter(self._folder, room=self._room)
        return self._writer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _greeting(folder: Path, identity: bytes) -> bytes:
    """Returns the first frame for the main process: ready, or failed. `identity`: for a store that has to be made."""
    try:
        CheckpointWriter(folder, identity).close()
    except ShoalError as error:
        return _failure(error)
    return encode_frame((READY, 0, {}))


def _checkpoint(kept: _Kept, connection: socket) -> bytes:
    """Receives one delta and writes it. Returns the answer for the main process. Raises Gone."""
    pieces: list[Piece] = []
    for piece in _pieces(connection):
        pieces.append(piece)
    _, _, (lsn,) = pieces.pop()
    try:
        figures = _written(kept, pieces, lsn)
    except ShoalError as error:
        kept.close()
        return _failure(error)
    return encode_frame((DONE, lsn, {**figures, "resident_bytes_peak": resident_bytes_peak()}))


def _written(kept: _Kept, pieces: list[Piece], lsn: int) -> dict[str, Any]:
    """Writes one delta and returns figures. What gave an I/O error though the disk has room is written once more, as a
    whole: there may have been no room at that moment. The figure `written_again` says so. Raises as the writer does."""
    try:
        return kept.writer().write(pieces, lsn)
    except Corrupt as error:
        if error.value != errno.EIO:
            raise
    kept.close()
    return {**kept.writer().write(pieces, lsn), "written_again": 1}


def _pieces(connection: socket) -> Iterator[Any]:
    """Yields the pieces of one delta, up to and including the commit frame. Raises Gone."""
    while True:
        frame = receive_frame(connection)
        if frame is None:
            raise Gone
        yield frame
        if frame[0] == COMMIT:
            return


def _failure(error: ShoalError) -> bytes:
    return encode_frame((FAILED, type(error).__name__, error.message))


if __name__ == "__main__":
    main(sys.argv[1:])
