"""The broker's end of a snapshot process: starts it, hands it requests, gets its messages, sees to its end.

Belongs here: the process and its socket. Not here: what it does (snapshot_process), who asks (bulk_service).
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from pathlib import Path

from shoal_contract.errors import Unavailable, from_wire_bytes
from shoal_slice_node.processes.child import CHILD_SOCKET, start_child
from shoal_slice_node.processes.child_frame import DATA, END, ERROR, encode_frame, read_frame
from shoal_slice_node.processes.limits import SNAPSHOT_END_S_MAX


class Snapshot:
    """One running snapshot process of the store in `folder`. Close it in `finally`."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, folder: Path, mode: str) -> Snapshot:
        """`mode`: export or verify."""
        arguments = [str(folder), CHILD_SOCKET, mode]
        process, ours = await start_child("shoal_slice_node.processes.snapshot_process", arguments)
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer)

    async def send(self, request: bytes) -> None:
        """A serialized message. If the process is gone, `receive` says so."""
        try:
            self._writer.write(encode_frame(DATA, request))
            await self._writer.drain()
        except ConnectionError:
            pass

    async def no_more(self) -> None:
        """After the last `send`."""
        try:
            self._writer.write(encode_frame(END))
            await self._writer.drain()
        except ConnectionError:
            pass

    async def receive(self) -> bytes | None:
        """The next serialized message; None: that was all. Raises what the process raised; Unavailable if it died."""
        try:
            kind, data = await read_frame(self._reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Unavailable(f"snapshot process {self._process.pid} is gone", subject="snapshot") from None
        if kind == ERROR:
            raise from_wire_bytes(data)
        return None if kind == END else data

    async def close(self) -> None:
        """It notices and ends by itself: only so does it give back its place among LMDB's readers at once."""
        self._writer.close()
        try:
            await asyncio.wait_for(self._process.wait(), SNAPSHOT_END_S_MAX)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
