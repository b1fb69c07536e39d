"""Holds the settings of a run. The runner writes them to a file; Locust's process and the generators read it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from shoal_loadtest.residents.limits import (
    CONSUMED_PER_SESSION_MAX,
    CONSUMED_QUEUES_MAX,
    DURATION_S_DEFAULT,
    LOST_AFTER_S,
)

FaultAsked = Literal["none", "drop", "double"]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the settings of a run. `redirector`: host:port. `report`: folder. `cluster_pid`: the pid of `shoal up`, for
    its memory and CPU; 0: the cluster was not started here.

    `pace` multiplies all rates, `slack` the latency levels. `fault`: generators drop or double received messages, to
    show that this is found.
    """

    redirector: str
    report: str
    cluster_pid: int = 0
    scale: float = 1.0
    shape: str = "steady"
    duration_s: float = DURATION_S_DEFAULT
    generators: int = 1
    slices: int = 1
    consumed_max: int = CONSUMED_QUEUES_MAX
    seed: int = 1
    pace: float = 1.0
    slack: float = 1.0
    lost_after_s: float = LOST_AFTER_S
    fault: FaultAsked = "none"

    @property
    def consumed_per_generator(self) -> int:
        """Returns the most queues: each generator has one inbox, which attaches all of them at each slice."""
        return min(self.consumed_max // self.generators, CONSUMED_PER_SESSION_MAX)

    @property
    def folder(self) -> Path:
        """Returns the folder of logs and reports."""
        return Path(self.report)

    def write(self) -> Path:
        path = self.folder / "setting.json"
        path.write_bytes(msgspec.json.encode(self))
        return path


def read_setting(path: Path) -> Setting:
    """Returns the settings in a file. Raises OSError, msgspec.ValidationError."""
    return msgspec.json.decode(path.read_bytes(), type=Setting)
