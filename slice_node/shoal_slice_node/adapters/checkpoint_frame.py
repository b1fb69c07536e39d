"""How broker and checkpointer talk: length-prefixed `marshal` frames over one socket pair, request and answer.

    length u32 little-endian | marshal of one of
    broker -> checkpointer    (shape, table, list)           a piece
                              ("commit", "", [lsn])          the end of the delta
    checkpointer -> broker    ("ready", 0, {})               at its start
                              ("done", lsn, figures)         the delta is on disk
                              ("failed", error class, text)  nothing of it is

`marshal` is as fast as it gets for lists of bytes; both ends are the same interpreter and one is the other's child.
"""

from __future__ import annotations

import marshal
from asyncio import StreamReader
from socket import MSG_WAITALL, socket
from struct import Struct
from typing import Any, Final

LENGTH: Final = Struct("<I")
COMMIT: Final = "commit"
READY: Final = "ready"
DONE: Final = "done"
FAILED: Final = "failed"


def encode_frame(value: tuple[Any, ...]) -> bytes:
    data = marshal.dumps(value)
    return LENGTH.pack(len(data)) + data


async def read_frame(reader: StreamReader) -> tuple[Any, ...]:
    """Raises IncompleteReadError when the other end is gone."""
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    frame: tuple[Any, ...] = marshal.loads(await reader.readexactly(length))
    return frame


def receive_frame(connection: socket) -> tuple[Any, ...] | None:
    """The blocking form; None when the other end is gone. Takes not a byte more than the frame."""
    head = connection.recv(LENGTH.size, MSG_WAITALL)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    data = connection.recv(length, MSG_WAITALL)
    return marshal.loads(data) if len(data) == length else None
