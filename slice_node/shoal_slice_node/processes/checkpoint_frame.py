"""Encodes what the main process and the checkpointer send each other: `marshal` in frames (child_frame) over one socket
pair.

    main -> checkpointer      (shape, table, list)           a piece
                              ("commit", "", [lsn])          the end of the delta
    checkpointer -> main      ("ready", 0, {})               at its start
                              ("done", lsn, figures)         the delta is on disk
                              ("failed", error class, text)  nothing of the delta is on disk

The main process sends requests, the checkpointer answers them. `marshal` is the fastest way for lists of bytes; it is
safe since both ends run the same interpreter, and one is the other's child.
"""

from __future__ import annotations

import marshal
from asyncio import StreamReader
from socket import socket
from typing import Any, Final

from shoal_slice_node.processes import child_frame

COMMIT: Final = "commit"
READY: Final = "ready"
DONE: Final = "done"
FAILED: Final = "failed"


def encode_frame(value: tuple[Any, ...]) -> bytes:
    return child_frame.encode_frame(child_frame.DATA, marshal.dumps(value))


async def read_frame(reader: StreamReader) -> tuple[Any, ...]:
    """Reads one message. Raises IncompleteReadError when the other end is gone."""
    _, data = await child_frame.read_frame(reader)
    frame: tuple[Any, ...] = marshal.loads(data)
    return frame


def receive_frame(connection: socket) -> tuple[Any, ...] | None:
    """Reads one message, blocking; None when the other end is gone."""
    found = child_frame.receive_frame(connection)
    return None if found is None else marshal.loads(found[1])
