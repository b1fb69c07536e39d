"""Runs one of Shoal's own servers as a child process. Its lines go to a file and to a listener.

Belongs here: its command and its ready line. Does not: which servers there are (cluster.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing

from shoal_local import limits
from shoal_local.child import Facts, LocalChild, how_it_ended
from shoal_local.health import answers_http
from shoal_local.log import Appending, LogFile
from shoal_runtime.tasks import Tasks

OnLine = Callable[[str, str], None]
"""Takes the process's name and a line without its end."""


class LocalProcess(LocalChild):
    """Runs `python -m MODULE ARGUMENTS`, which prints one JSON line when it is ready.

    Python does not search the current folder for modules: every server would run a file `queue.py` there.
    `first`: further arguments, until it was ready once. `health`: host:port of its HTTP; empty: it is not asked whether
    it answers.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: LogFile,
        on_line: OnLine,
        first: Sequence[str] = (),
        health: str = "",
    ) -> None:
        super().__init__(name, log)
        self._health = health
        self._command = command
        self._on_line = on_line
        self._first = list(first)
        self._reading: Tasks | None = None
        self._copies: list[asyncio.Task[None]] = []

    async def start(self) -> Facts:
        await self._close_reading()
        command = [sys.executable, "-P", "-m", *self._command, *self._first]
        process = await self._spawn(command, subprocess.PIPE, {**os.environ, "PYTHONSAFEPATH": "1"})
        assert process.stdout is not None
        assert process.stderr is not None
        self._reading = Tasks(self.name)
        self._copies = [self._reading.start("stderr", self._copy(process.stderr))]
        try:
            facts = await self._ready(process, process.stdout)
        except BaseException:
            await self.kill()
            raise
        self._first = []
        self._copies.append(self._reading.start("stdout", self._copy(process.stdout)))
        return facts

    async def answers(self) -> bool:
        return not self._health or await answers_http(self._health, limits.HEALTH_WITHIN_S)

    async def stop(self) -> None:
        await super().stop()
        await self._close_reading()

    async def _ready(self, process: asyncio.subprocess.Process, stdout: asyncio.StreamReader) -> Facts:
        """Waits for the process's first line, up to READY_S: recovery of a long journal takes time."""
        assert self._reading is not None
        reading = self._reading.start("ready", stdout.readline())
        done, _ = await asyncio.wait([reading], timeout=limits.START_S)
        if not done:
            self._on_line("shoal", f"{self.name} is not ready after {limits.START_S:g} s; waiting on")
            done, _ = await asyncio.wait([reading], timeout=limits.READY_S - limits.START_S)
        if not done:
            raise self._failed(f"was not ready after {limits.READY_S:g} s")
        if not (line := reading.result()):
            code = await process.wait()
            await self._close_reading()
            raise self._failed(f"ended {how_it_ended(code)} before it was ready")
        try:
            facts: Facts = json.loads(line)
        except ValueError:
            raise self._failed(f"said {line[:80]!r} in place of being ready") from None
        return facts

    async def _copy(self, stream: asyncio.StreamReader) -> None:
        with closing(Appending(self.log, lambda why: self._on_line("shoal", why))) as log:
            while True:
                try:
                    line = await stream.readline()
                except ValueError:
                    line = b"(a line longer than LINE_BYTES_MAX was left out)\n"
                if not line:
                    return
                log.write(line)
                self._on_line(self.name, line.decode(errors="replace").rstrip())

    async def _close_reading(self) -> None:
        """Reads the last lines before it stops reading. The process has ended, so its streams end, unless a child of
        its own holds them."""
        if self._reading is not None:
            await asyncio.wait(self._copies, timeout=limits.LAST_LINES_S)
            await self._reading.close()
            self._reading = None
