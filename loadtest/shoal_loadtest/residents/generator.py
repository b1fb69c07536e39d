"""One generator: a process with its part of the town. It takes commands on stdin and reports on stdout (wire.py).

`python -m shoal_loadtest.residents.generator SETTING PART`. Belongs here: the clock, commands, reports, the end.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import random
import resource
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import shoal_runtime.without_forks  # noqa: F401 - before gRPC is imported # isort: skip
import shoal
from shoal_loadtest.residents import wire
from shoal_loadtest.residents.core.load import load_at, part_of
from shoal_loadtest.residents.core.sessions import Arrivals, rest_s, session_s
from shoal_loadtest.residents.core.talk import Talk
from shoal_loadtest.residents.core.town import Town
from shoal_loadtest.residents.core.windows import Faults, Windows
from shoal_loadtest.residents.crowds import Crowds
from shoal_loadtest.residents.limits import (
    CALLS_IN_FLIGHT_MAX,
    CROWD_WORKERS,
    INBOX_BYTES,
    REPORT_EVERY_S,
    TURN_S,
    WARM_UP_S_MAX,
    WINDOW_BYTES,
    WINDOW_MESSAGES,
)
from shoal_loadtest.residents.listening import Listening
from shoal_loadtest.residents.scene import Scene, State, now_s, until
from shoal_loadtest.residents.setting import Setting, read_setting
from shoal_loadtest.residents.speaking import say
from shoal_loadtest.residents.visits import Change, Visits
from shoal_runtime.loops import Loop
from shoal_runtime.tasks import Tasks


class Generator:
    """Runs one part of the load; use `run`. It ends when told to finish, or when the process that started it is gone
    (end of stdin)."""

    def __init__(self, scene: Scene, commands: asyncio.StreamReader, reports: asyncio.StreamWriter) -> None:
        self._scene = scene
        self._commands = commands
        self._reports = reports
        self._visits = Visits(scene, self._settled)
        self._crowds = Crowds(scene, self._visits)
        self._listening = Listening(scene)
        self._ended = asyncio.Event()
        self._why = ""
        self._finishing = False
        self._tasks = Tasks("generator", self._broke)
        self._calls = Tasks("residents", self._broke)
        self._ends: list[tuple[float, int, int]] = []
        """A heap of (when, seat, resident): sessions that end within this run."""
        self._horizon_s = now_s() + WARM_UP_S_MAX + scene.setting.duration_s
        load = part_of(load_at(scene.setting.scale, scene.setting.pace), scene.setting.generators)
        self._moves_per_seat_s = load.moves_per_s / load.residents
        self._messages_per_seat_s = load.messages_per_s / load.residents
        self._moves = Arrivals(scene.chance, now_s())
        self._messages = Arrivals(scene.chance, now_s())
        self._sizes = wire.Sizes(0, 0, 0, 0)

    async def run(self) -> None:
        scene = self._scene
        self._tell(wire.Ready(scene.town.seats, scene.watched, scene.town.groups))
        for number in range(CROWD_WORKERS):
            self._tasks.start(f"crowd {number}", self._crowds.run())
        clock = self._tasks.start("clock", self._clock())
        self._tasks.start("listen", self._listening.run())
        self._tasks.start("detach", self._visits.detach())
        self._tasks.start("report", self._report())
        self._tasks.start("commands", self._obey())
        await self._ended.wait()
        clock.cancel()
        if self._why:
            self._tell(wire.Broken(self._why))
        elif self._finishing:
            await self._finish()
        await self._calls.close()
        await self._tasks.close()
        await self._reports.drain()

    async def _obey(self) -> None:
        while line := await self._commands.readline():
            match wire.command_of(line):
                case wire.Come(crowd):
                    self._crowds.come(crowd)
                case wire.Go(crowd):
                    self._crowds.go(crowd)
                case wire.Measure():
                    self._scene.samples.take()
                    self._scene.town.churn.clear()
                    self._scene.samples.measuring = True
                    # In a thread: it may take long enough to disturb the figures.
                    self._sizes = wire.Sizes(*await asyncio.to_thread(self._scene.town.sizes))
                case wire.Finish():
                    self._finishing = True
                    break
        self._ended.set()

    async def _clock(self) -> None:
        """Starts what is due. When too many calls are under way, due work waits, and its latency grows."""
        scene = self._scene
        audited_s = 0.0
        while True:
            now = now_s()
            if len(self._calls) < CALLS_IN_FLIGHT_MAX:
                self._end_sessions(now)
                for due_s in self._moves.due(now, self._moves_per_seat_s * scene.online):
                    if (seat := self._anyone()) >= 0:
                        self._call("move", self._visits.move(seat, due_s))
                for due_s in self._messages.due(now, self._messages_per_seat_s * scene.online):
                    if (seat := self._anyone()) >= 0:
                        self._call("say", say(scene, seat, due_s))
            if now > audited_s + 1:
                audited_s = now
                self._listening.audit(scene.talk.audits(now - scene.setting.lost_after_s))
            await asyncio.sleep(TURN_S)

    def _end_sessions(self, now: float) -> None:
        later: list[tuple[float, int, int]] = []
        while self._ends and self._ends[0][0] <= now:
            due_s, seat, resident = heapq.heappop(self._ends)
            if self._scene.town.resident(seat) != resident:
                continue
            if self._scene.states[seat] == State.ONLINE:
                self._call("log out", self._visits.log_out(seat, due_s))
            elif self._scene.states[seat] == State.BUSY:
                later.append((now + TURN_S, seat, resident))
        for entry in later:
            heapq.heappush(self._ends, entry)

    def _anyone(self) -> int:
        """Returns a seat that is online; -1 if a hundred picks find none."""
        scene = self._scene
        for _ in range(100):
            seat = scene.chance.randrange(scene.town.seats)
            if scene.states[seat] == State.ONLINE:
                return seat
        return -1

    def _settled(self, seat: int, change: Change) -> None:
        """Decides what follows: the session's end, or another resident in the seat."""
        wanted = self._crowds.is_wanted(seat)
        if change == "left":
            if wanted:
                self._call("log in", self._visits.log_in([seat], now_s()))
        elif not wanted:
            self._call("log out", self._visits.log_out(seat, now_s()))
        elif change != "moved":
            chance = self._scene.chance
            self._stays(seat, rest_s(chance) if change == "found" else session_s(chance))

    def _stays(self, seat: int, length_s: float) -> None:
        if (end_s := now_s() + length_s / self._scene.setting.pace) < self._horizon_s:
            heapq.heappush(self._ends, (end_s, seat, self._scene.town.resident(seat)))

    def _call(self, name: str, call: Coroutine[Any, Any, None]) -> None:
        if self._ended.is_set():
            call.close()
        else:
            self._calls.start(name, call)

    def _broke(self, name: str, error: BaseException) -> None:
        self._why = self._why or f"{name}: {type(error).__name__}: {error}"
        self._ended.set()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self._tell_report()
            await self._reports.drain()

    def _tell_report(self) -> None:
        scene = self._scene
        samples_ms, counts, failures = scene.samples.take()
        counts |= scene.town.churn
        scene.town.churn.clear()
        self._tell(
            wire.Report(
                online=scene.online,
                wanted=self._crowds.wanted,
                moving=self._crowds.moving,
                moving_s=self._crowds.moving_s,
                moved=self._crowds.moved,
                samples_ms=samples_ms,
                counts=counts,
                failures=failures,
                faults=dict(scene.faults.counts),
            )
        )

    async def _finish(self) -> None:
        """Begins nothing more and waits for all messages that were sent. Those that have not come by then are lost."""
        scene = self._scene
        until_s = now_s() + scene.setting.lost_after_s
        await until(lambda: not (len(self._calls) or self._crowds.moving) or now_s() > until_s)
        heard = list(scene.talk.audits(float("inf")))
        await until(lambda: all(map(self._listening.is_complete, heard)) or now_s() > until_s)
        self._listening.audit(heard)
        scene.windows.finish()
        self._tell_report()
        used = resource.getrusage(resource.RUSAGE_SELF)
        windows, cases = scene.windows, [str(case) for case in scene.faults.cases]
        cpu_s = used.ru_utime + used.ru_stime
        self._tell(wire.Finished(self._sizes, windows.seen, self._listening.audited, windows.redelivered, cases, cpu_s))

    def _tell(self, message: wire.Message) -> None:
        self._reports.write(wire.line_of(message))


async def generate(setting: Setting, part: int) -> None:
    """Runs one generator to its end. Raises ShoalError if the cluster cannot be reached."""
    load = part_of(load_at(setting.scale, setting.pace), setting.generators)
    chance = random.Random(f"{setting.seed} {part}")
    town = Town(load, chance, part, setting.generators)
    faults = Faults()
    windows = Windows(town.places, faults, town.who)
    watched = min(town.seats, setting.consumed_per_generator)
    commands, reports = await _pipes()
    async with shoal.connect(setting.redirector) as broker:
        inbox = broker.consume(
            [],
            window_messages=WINDOW_MESSAGES,
            window_bytes=WINDOW_BYTES,
            buffer_bytes=INBOX_BYTES,
            drop_repeats=False,
        )
        async with inbox:
            scene = Scene(broker, inbox, setting, town, windows, Talk(faults), faults, chance, watched)
            await Generator(scene, commands, reports).run()


async def _pipes() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    # A copy of stdout: what is printed by mistake goes to stderr, not between the reports.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, out)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


if __name__ == "__main__":
    import gc
    import logging

    import uvloop

    logging.basicConfig(level=logging.WARNING)
    # There are millions of entries that live as long as the process: a collection of all of them stalls everything.
    gc.set_threshold(100_000, 50, 1000)
    uvloop.run(generate(read_setting(Path(sys.argv[1])), int(sys.argv[2])), loop_factory=Loop)
