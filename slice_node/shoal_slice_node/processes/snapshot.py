"""The main process's end of a snapshot process: starts it, sends it requests, receives its messages, and ends it.

Belongs here: the process and its socket. Not here: what it does (snapshot_process), its caller (bulk_service).
"""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process
from pathlib import Path

from shoal_contract.errors import Unavailable, from_wire_bytes
from shoal_runtime.child_signals import send_signal
from shoal_slice_node.processes.child import CHILD_SOCKET, start_child
from shoal_slice_node.processes.child_frame import DATA, END, ERROR, encode_frame, read_frame
from shoal_slice_node.processes.limits import SNAPSHOT_END_S_MAX


class Snapshot:
    """Controls one snapshot process of a store. Close it in `finally`."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, folder: Path, mode: str) -> Snapshot:
        """Starts a snapshot process of the store in `folder`. `mode`: export or verify."""
        arguments = [str(folder), CHILD_SOCKET, mode]
        process, ours = await start_child("shoal_slice_node.processes.snapshot_process", arguments)
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer)

    async def send(self, request: bytes) -> None:
        """Sends a serialized message. If the process is gone, `receive` raises that."""
        try:
            self._writer.write(encode_frame(DATA, request))
            await self._writer.drain()
        except ConnectionError:
            pass

    async def no_more(self) -> None:
        """Tells the process that no more messages follow; called after the last `send`."""
        try:
            self._writer.write(encode_frame(END))
            await self._writer.drain()
        except ConnectionError:
            pass

    async def receive(self) -> bytes | None:
        """Returns the next serialized message; None: there are no more. Raises the process's error; Unavailable if it
        died."""
        try:
            kind, data = await read_frame(self._reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Unavailable(
                f"snapshot process {self._process.pid} has ended; ask again", subject="snapshot"
            ) from None
        if kind == ERROR:
            raise from_wire_bytes(data)
        return None if kind == END else data

    async def close(self) -> None:
        """Closes the socket and waits for the process to end by itself: only then does it free its LMDB reader slot at
        once. Kills it after SNAPSHOT_END_S_MAX."""
        self._writer.close()
        try:
            await asyncio.wait_for(self._process.wait(), SNAPSHOT_END_S_MAX)
        except TimeoutError:
            send_signal(self._process, signal.SIGKILL)
            await self._process.wait()
