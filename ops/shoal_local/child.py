"""Starts one process of a local cluster until it is ready, waits for its end, and ends it, for the supervisor.

Belongs here: what is the same for every kind of process. Does not: how one kind is started and says that it is ready
(etcd.py, process.py), starting again (supervisor.py).
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from abc import ABC, abstractmethod
from typing import BinaryIO

from shoal_contract.errors import Unavailable
from shoal_local import limits
from shoal_local.end_with_parent import tied_command
from shoal_local.log import LogFile
from shoal_runtime.child_signals import send_signal

Facts = dict[str, object]
"""The facts that a process tells when it is ready, such as its addresses."""


class LocalChild(ABC):
    """Runs a child process, which ends with its parent. It may be started again after it has ended."""

    def __init__(self, name: str, log: LogFile) -> None:
        self.name = name
        self.log = log
        self._process: asyncio.subprocess.Process | None = None
        self.ready = False
        """True if its last start succeeded, and its end is not reported yet. The supervisor sets it."""

    @property
    def pid(self) -> int:
        """Returns the pid of the process that was started last."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @abstractmethod
    async def start(self) -> Facts:
        """Starts the process, and returns the facts that it tells when it is ready.

        Raises Unavailable with its last words if it ends or stays silent instead; then it does not run.
        """

    async def answers(self) -> bool:
        """Returns whether the process answers now; True for a kind that cannot be asked."""
        return True

    @property
    def ended_well(self) -> bool:
        """Returns whether the process that was started last has ended, with code 0."""
        return self._process is not None and self._process.returncode == 0

    async def wait(self) -> int:
        """Waits for the end of the process, and returns its code; negative: the signal."""
        assert self._process is not None, "not started"
        return await self._process.wait()

    async def stop(self) -> None:
        """Ends the process cleanly; kills it if that takes longer than STOP_S."""
        if self._process is None or self._process.returncode is not None:
            return
        send_signal(self._process, signal.SIGTERM)
        try:
            async with asyncio.timeout(limits.STOP_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Ends the process as kill -9 does."""
        if self._process is not None and self._process.returncode is None:
            send_signal(self._process, signal.SIGKILL)
            await self._process.wait()

    async def _spawn(
        self, command: list[str], output: int | BinaryIO, environment: dict[str, str]
    ) -> asyncio.subprocess.Process:
        """Starts `command`. `output`: where its stdout and stderr go, as asyncio's subprocess takes it."""
        assert not self.running, "already started"
        # It has its own session: Ctrl-C in a terminal reaches only the starter, which ends its children in order.
        self._process = await asyncio.create_subprocess_exec(
            *tied_command(*command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            limit=limits.LINE_BYTES_MAX,
            env=environment,
            start_new_session=True,
        )
        return self._process

    def _failed(self, what: str) -> Unavailable:
        words = self.log.last_words()
        return Unavailable(f"{self.name} {what}{words and f': {words}'} (log: {self.log.path})", subject=self.name)


def how_it_ended(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with code {code}"
