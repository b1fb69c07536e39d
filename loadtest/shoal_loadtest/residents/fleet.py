"""The generators as Locust's process sees them: it starts them, commands them and reads their reports. Runs under
gevent.

Belongs here: processes, pipes, the sum of their reports. Not here: when which command is sent (locustfile.py).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import gevent
import msgspec

from shoal_loadtest.residents import wire
from shoal_loadtest.residents.limits import GENERATOR_READY_S_MAX, GENERATOR_STOP_S_MAX
from shoal_loadtest.residents.setting import Setting

OnReport = Callable[[wire.Report], None]


class Fleet:
    """Runs the generators. `on_report` gets every report. `broken`: why the run cannot go on; empty if it can."""

    def __init__(self, setting: Setting, on_report: OnReport) -> None:
        self._setting = setting
        self._on_report = on_report
        self._processes: list[subprocess.Popen[bytes]] = []
        self._latest: dict[int, wire.Report] = {}
        self.ready: dict[int, wire.Ready] = {}
        self.finished: dict[int, wire.Finished] = {}
        self.broken = ""

    def start(self) -> None:
        """Starts the generators and waits until all are connected; if that fails, `broken` says why."""
        setting_file = self._setting.write()
        for part in range(self._setting.generators):
            command = [sys.executable, "-m", "shoal_loadtest.residents.generator", str(setting_file), str(part)]
            with (self._setting.folder / f"generator-{part}.log").open("wb") as log:
                # In sessions of their own: Ctrl-C is for Locust, which lets the generators finish.
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
                )
            self._processes.append(process)
            gevent.spawn(self._listen, part, process)
        self._wait(lambda: len(self.ready) == self._setting.generators, GENERATOR_READY_S_MAX, "did not get ready")

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def seats(self) -> int:
        return sum(ready.seats for ready in self.ready.values())

    @property
    def online(self) -> int:
        return sum(report.online for report in self._latest.values())

    @property
    def wanted(self) -> int:
        return sum(report.wanted for report in self._latest.values())

    @property
    def moving(self) -> bool:
        return any(report.moving for report in self._latest.values())

    @property
    def moving_s(self) -> float:
        """Returns the seconds of the generator that moved longest."""
        return max((report.moving_s for report in self._latest.values()), default=0.0)

    @property
    def moved(self) -> int:
        return sum(report.moved for report in self._latest.values())

    @property
    def faults(self) -> Counter[str]:
        return sum((Counter(report.faults) for report in self._latest.values()), Counter())

    def tell(self, command: wire.Command) -> None:
        """Sends a command to all generators."""
        for process in self._processes:
            try:
                assert process.stdin is not None
                process.stdin.write(wire.line_of(command))
                process.stdin.flush()
            except OSError as error:
                self._break(f"generator {process.pid} does not listen: {error}")

    def finish(self) -> None:
        """Waits until each generator has checked all messages and ended."""
        if not self.broken:
            self.tell(wire.Finish())
            seconds = 2 * self._setting.lost_after_s + GENERATOR_STOP_S_MAX
            self._wait(lambda: len(self.finished) == len(self._processes), seconds, "did not finish")
        self.stop()

    def stop(self) -> None:
        """Closes the generators' stdin, at which they end; one that does not end is killed."""
        for process in self._processes:
            assert process.stdin is not None
            try:
                process.stdin.close()
            except OSError:
                pass
        for process in self._processes:
            try:
                process.wait(GENERATOR_STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _listen(self, part: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                self._take(part, wire.message_of(line))
            except msgspec.ValidationError as error:
                self._break(f"generator {part} says what is no message: {error}")
        if part not in self.finished:
            log = self._setting.folder / f"generator-{part}.log"
            self._break(f"generator {part} ended with code {process.wait()}; see {log}")

    def _take(self, part: int, message: wire.Message) -> None:
        match message:
            case wire.Ready():
                self.ready[part] = message
            case wire.Report():
                self._latest[part] = message
                self._on_report(message)
            case wire.Finished():
                self.finished[part] = message
            case wire.Broken(why):
                self._break(f"generator {part}: {why}")

    def _break(self, why: str) -> None:
        self.broken = self.broken or why

    def _wait(self, over: Callable[[], bool], seconds: float, what: str) -> None:
        until_s = time.monotonic() + seconds
        while not over() and not self.broken:
            if time.monotonic() > until_s:
                self._break(f"the generators {what} within {seconds:g} s")
            gevent.sleep(0.02)
