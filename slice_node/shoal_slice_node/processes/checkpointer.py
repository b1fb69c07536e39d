"""The main process's end of the checkpointer process: starts the process, sends it a frozen delta, and gets its answer.

Belongs here: the process and its socket. Not here: what it does (checkpointer_process), when (store).
The process is started with exec, never by fork alone: a forked process would share the threads' locks and the memory.
"""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal_contract import errors
from shoal_contract.errors import ShoalError, Unavailable
from shoal_runtime.child_signals import send_signal
from shoal_slice_node.core.tables.delta_piece import Piece
from shoal_slice_node.processes.checkpoint_frame import COMMIT, FAILED, encode_frame, read_frame
from shoal_slice_node.processes.child import CHILD_SOCKET, start_child
from shoal_slice_node.processes.limits import CHECKPOINTER_ANSWER_S_MAX, CHECKPOINTER_END_S_MAX


class Checkpointer:
    """Controls the checkpointer process of one folder. After an Unavailable the process is dead: start another one and
    send the delta again."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, folder: Path, lock_fd: int, identity: bytes = b"") -> Checkpointer:
        """Starts a checkpointer, which makes a store of this identity in `folder` if there is none. Raises Conflict,
        Corrupt, ResourceExhausted, Unavailable."""
        arguments = [str(folder), CHILD_SOCKET, str(lock_fd), "greet", identity.decode()]
        process, ours = await start_child("shoal_slice_node.processes.checkpointer_process", arguments, (lock_fd,))
        reader, writer = await asyncio.open_connection(sock=ours)
        checkpointer = cls(process, reader, writer)
        try:
            await checkpointer._answer()
        except BaseException:
            await checkpointer.close()
            raise
        return checkpointer

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def dead(self) -> bool:
        return self._process.returncode is not None or self._reader.at_eof()

    @property
    def ending(self) -> str:
        """Says how the process ended, as the end of a sentence."""
        code = self._process.returncode
        if code is None:
            return f"process {self.pid} does not answer"
        return f"process {self.pid} ended " + (f"by signal {-code}" if code < 0 else f"with status {code}")

    async def write(self, pieces: Iterator[Piece], lsn: int) -> dict[str, Any]:
        """Sends all pieces, waits for the commit, and returns figures. Other tasks get their turn after each piece; a
        piece is made only when the one before it has been sent. Raises Unavailable (the process died),
        ResourceExhausted, Corrupt."""
        try:
            for piece in pieces:
                self._writer.write(encode_frame(piece))
                await self._writer.drain()
                await asyncio.sleep(0)
            self._writer.write(encode_frame((COMMIT, "", [lsn])))
            await self._writer.drain()
        except ConnectionError:
            raise await self._death() from None
        _, done_lsn, figures = await self._answer()
        assert done_lsn == lsn
        return dict(figures)

    async def _answer(self) -> tuple[Any, ...]:
        try:
            answer = await asyncio.wait_for(read_frame(self._reader), CHECKPOINTER_ANSWER_S_MAX)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            raise await self._death() from None
        if answer[0] == FAILED:
            error: type[ShoalError] = getattr(errors, answer[1])
            raise error(answer[2], subject="checkpoint")
        return answer

    async def _death(self) -> Unavailable:
        await self.kill()
        return Unavailable(f"the checkpointer {self.ending}", subject="checkpointer")

    async def kill(self) -> None:
        """Kills the process at once. For a commit under way this is like a crash, which LMDB survives."""
        send_signal(self._process, signal.SIGKILL)
        await self.close()

    async def close(self) -> None:
        """Closes the socket and waits for the process, which then ends by itself; kills it if it does not. One that not
        even that ends, as its disk hangs, is left."""
        self._writer.close()
        for number in (signal.SIGKILL, None):
            try:
                async with asyncio.timeout(CHECKPOINTER_END_S_MAX):
                    await self._process.wait()
                return
            except TimeoutError:
                if number is not None:
                    send_signal(self._process, number)
