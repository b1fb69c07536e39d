"""The file that Locust runs: shapes decide how many crowds are online, and reports of generators become Locust's
statistics.

`locust -f .../locustfile.py --headless --setting FILE`, started by run.py. One Locust user is a crowd, a hundredth of
the residents: as users start and stop, residents log in and out. Nothing here may import gRPC, since gevent has patched
this process.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gevent
from locust import LoadTestShape, User, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from shoal_loadtest.residents import wire
from shoal_loadtest.residents.core.shapes import Stage, stage_at
from shoal_loadtest.residents.limits import CROWDS, ONLINE_SHARE_READY, USAGE_EVERY_S, WARM_UP_S_MAX
from shoal_loadtest.residents.run_record import RunRecord
from shoal_loadtest.residents.setting import read_setting

IDLE_S = 3600.0


class Run:
    """Controls the only run of this process."""

    def __init__(self, environment: Environment, setting_file: Path) -> None:
        self.environment = environment
        self.setting = read_setting(setting_file)
        self.record = RunRecord(self.setting, self._fire)
        self.fleet = self.record.fleet
        self._crowds = list(range(CROWDS))[::-1]
        """The crowds that no Locust user stands for."""
        self._began_s = time.monotonic()

    def start(self) -> None:
        self.record.start()
        gevent.spawn(self._look)

    def take_crowd(self) -> int:
        crowd = self._crowds.pop()
        self.fleet.tell(wire.Come(crowd))
        return crowd

    def give_crowd(self, crowd: int) -> None:
        self._crowds.append(crowd)
        if not self.record.ended:
            self.fleet.tell(wire.Go(crowd))

    def stage(self) -> Stage | None:
        """Returns the present stage of the shape; None if it is over, or the run cannot go on."""
        now_s = time.monotonic()
        if self.fleet.broken or self.record.faulty:
            return None
        if self.record.measuring:
            return stage_at(self.setting.shape, now_s - self.record.since_s, self.setting.duration_s)
        first = stage_at(self.setting.shape, 0, self.setting.duration_s)
        assert first is not None
        wanted = self.fleet.seats * first.crowds / CROWDS
        if self.fleet.online >= wanted * ONLINE_SHARE_READY and not self.fleet.moving:
            self.environment.stats.clear_all()
            self.record.measure()
        elif now_s - self._began_s > WARM_UP_S_MAX:
            self.fleet.broken = f"only {self.fleet.online:,} residents were online after {WARM_UP_S_MAX:g} s"
        return first

    def end(self) -> None:
        """Ends the run with its verdict, which sets this process's exit code."""
        self.record.end()
        self.environment.process_exit_code = 0 if self.record.passed else 1

    def _fire(self, name: str, latency_ms: float, error: Exception | None) -> None:
        fire: Any = self.environment.events.request.fire
        fire(request_type="shoal", name=name, response_time=latency_ms, response_length=0, exception=error, context={})

    def _look(self) -> None:
        while not self.record.ended:
            gevent.sleep(USAGE_EVERY_S)
            self.record.look()


_runs: list[Run] = []
"""The run, once Locust has initialised."""


class Crowd(User):
    """Stands for a hundredth of the residents: they are online from the user's start to its stop."""

    def on_start(self) -> None:
        self._crowd = _runs[0].take_crowd()

    def on_stop(self) -> None:
        _runs[0].give_crowd(self._crowd)

    @task
    def live(self) -> None:
        """Sleeps, and nothing else: the residents live in the generators."""
        gevent.sleep(IDLE_S)


class Shape(LoadTestShape):
    """Follows the setting's shape, after a warm-up."""

    def tick(self) -> tuple[int, float] | None:
        stage = _runs[0].stage()
        return None if stage is None else (stage.crowds, stage.per_s)


def _arguments(parser: LocustArgumentParser) -> None:
    parser.add_argument("--setting", type=Path, required=True, help="What run.py wrote.", include_in_web_ui=False)


def _init(environment: Environment, **_: Any) -> None:
    assert environment.parsed_options is not None
    _runs.append(Run(environment, environment.parsed_options.setting))
    _runs[0].start()


def _stopping(environment: Environment, **_: Any) -> None:
    _runs[0].end()


_events: Any = events
"""Locust's listeners have no types."""
_events.init_command_line_parser.add_listener(_arguments)
_events.init.add_listener(_init)
_events.test_stopping.add_listener(_stopping)
