"""The snapshot process: reads memberships out of one LMDB snapshot of the store. Each call has one of its own.

    python -m shoal_slice_node.processes.snapshot_process FOLDER SOCKET_FD export|verify

It is a separate process, so that a walk over millions of rows does not slow down the main process. It only reads, and
ends when the main process's end of the socket closes.

Belongs here: the loop. Not here: what a membership is (core/read/memberships), the frames (processes/child_frame).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from socket import socket

from shoal_contract.errors import ShoalError
from shoal_contract.wire import bulk_pb2 as wire
from shoal_runtime.grpc_requests import decode
from shoal_slice_node.core.read.memberships import Verifier, export_pages
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.verbs.changes import parse_import
from shoal_slice_node.processes.child_frame import DATA, END, ERROR, encode_frame, receive_frame
from shoal_slice_node.processes.limits import EXPORT_PAGE_BYTES, EXPORT_PAGE_MEMBERSHIPS, SNAPSHOT_NICENESS
from shoal_slice_node.storage.lmdb_tables import LmdbBase


def main(arguments: list[str]) -> None:
    folder, connection, mode = Path(arguments[0]), socket(fileno=int(arguments[1])), arguments[2]
    os.nice(SNAPSHOT_NICENESS)
    try:
        base = LmdbBase(folder)
        try:
            (_export if mode == "export" else _verify)(base, connection)
            connection.sendall(encode_frame(END))
        except ShoalError as error:
            connection.sendall(encode_frame(ERROR, error.to_wire().SerializeToString()))
        finally:
            base.close()
    except (BrokenPipeError, ConnectionResetError):
        return


def _export(base: LmdbBase, connection: socket) -> None:
    for page in export_pages(Delta(base), base.lsn, EXPORT_PAGE_MEMBERSHIPS, EXPORT_PAGE_BYTES):
        connection.sendall(encode_frame(DATA, page.SerializeToString()))


def _verify(base: LmdbBase, connection: socket) -> None:
    """Verifies each chunk that the main process sends. Raises Malformed, TooLarge."""
    verifier = Verifier(Delta(base), base.lsn)
    while (frame := receive_frame(connection)) is not None and frame[0] == DATA:
        request = decode(wire.VerifyRequest.FromString, frame[1])
        imports = parse_import(request.change)[0].steps[0].imports
        connection.sendall(encode_frame(DATA, verifier.verify(request.chunk, imports).SerializeToString()))


if __name__ == "__main__":
    main(sys.argv[1:])
