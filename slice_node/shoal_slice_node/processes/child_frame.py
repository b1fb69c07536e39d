"""Defines the frames between the main process and a child process, over one socket pair.

kind u8 | length u32 little-endian | bytes

DATA    a serialized message: to a snapshot process a VerifyRequest, from it an ExportResponse or a VerifyResponse;
        for the main process and the checkpointer see checkpoint_frame
END     empty: no more frames follow
ERROR   a serialized Error from the child; no more frames follow
"""

from __future__ import annotations

from asyncio import StreamReader
from socket import MSG_WAITALL, socket
from struct import Struct
from typing import Final

_HEAD: Final = Struct("<BI")
DATA: Final = 0
END: Final = 1
ERROR: Final = 2


def encode_frame(kind: int, data: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(data)) + data


async def read_frame(reader: StreamReader) -> tuple[int, bytes]:
    """Reads one frame: its kind and its bytes. Raises IncompleteReadError when the other end is gone."""
    kind, length = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return kind, await reader.readexactly(length)


def receive_frame(connection: socket) -> tuple[int, bytes] | None:
    """Reads one frame, blocking; None when the other end is gone. Reads no byte beyond the frame."""
    head = connection.recv(_HEAD.size, MSG_WAITALL)
    if len(head) < _HEAD.size:
        return None
    kind, length = _HEAD.unpack(head)
    data = connection.recv(length, MSG_WAITALL) if length else b""
    return (kind, data) if len(data) == length else None
