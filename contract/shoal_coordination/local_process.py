"""One server of a local cluster as a child process: started, watched, ended. Its lines go to a file and to a listener.

Belongs here: a child's life. Does not: which servers there are, starting them again (local_cluster.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from shoal_contract.errors import Unavailable
from shoal_contract.tasks import Tasks
from shoal_coordination import limits
from shoal_coordination.end_with_parent import tied_command

OnLine = Callable[[str, str], None]
"""name of the process, line without its end."""


class LocalProcess:
    """`python -m MODULE ARGUMENTS` that prints one JSON line when it is ready. Start it again after it has ended."""

    def __init__(self, name: str, command: Sequence[str], log: Path, on_line: OnLine) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._reading: Tasks | None = None
        self._copies: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> dict[str, object]:
        """Returns what it says when ready. Raises Unavailable with its last line when it ends or is silent instead."""
        assert not self.running, "already started"
        await self._close_reading()
        # Its own session: Ctrl-C in a terminal reaches the starter, which ends its children in order.
        self._process = await asyncio.create_subprocess_exec(
            *tied_command(sys.executable, "-m", *self._command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=limits.LOCAL_LINE_BYTES_MAX,
            env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "false"},  # None forks; else each child it starts is logged.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._reading = Tasks(self.name)
        self._copies = [self._reading.start("stderr", self._copy(self._process.stderr))]
        try:
            async with asyncio.timeout(limits.LOCAL_START_S):
                first = await self._process.stdout.readline()
        except TimeoutError:
            await self.kill()
            raise self._failed(f"was not ready after {limits.LOCAL_START_S:.0f} s") from None
        except BaseException:
            await self.kill()
            raise
        if not first:
            await self._process.wait()
            await self._close_reading()
            raise self._failed(f"ended with code {self._process.returncode} before it was ready")
        self._copies.append(self._reading.start("stdout", self._copy(self._process.stdout)))
        ready: dict[str, object] = json.loads(first)
        return ready

    async def wait(self) -> int:
        """The code it ended with; negative: the signal."""
        assert self._process is not None, "not started"
        return await self._process.wait()

    async def stop(self) -> None:
        """SIGTERM, and kill after LOCAL_STOP_S."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(limits.LOCAL_STOP_S):
                    await self._process.wait()
            except TimeoutError:
                await self.kill()
        await self._close_reading()

    async def kill(self) -> None:
        """As kill -9."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _copy(self, stream: asyncio.StreamReader) -> None:
        with self._log.open("ab", buffering=0) as log:
            while True:
                try:
                    line = await stream.readline()
                except ValueError:
                    line = b"(a line longer than LOCAL_LINE_BYTES_MAX was left out)\n"
                if not line:
                    return
                log.write(line)
                self._on_line(self.name, line.decode(errors="replace").rstrip())

    async def _close_reading(self) -> None:
        """What it said last is read first: it has ended, so its streams end, unless a child of its own holds them."""
        if self._reading is not None:
            await asyncio.wait(self._copies, timeout=limits.LOCAL_LAST_LINES_S)
            await self._reading.close()
            self._reading = None

    def _failed(self, what: str) -> Unavailable:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        last = f": {lines[-1]}" if lines else ""
        return Unavailable(f"{self.name} {what}{last} (log: {self._log})", subject=self.name)
