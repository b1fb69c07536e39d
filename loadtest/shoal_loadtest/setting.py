"""Holds the settings of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal_loadtest.limits import SECONDS_DEFAULT, SECONDS_QUICK


@dataclass(frozen=True)
class Setting:
    """Holds the settings of a run. `seconds` 0: the bench's own choice. `seed` fixes what is random. `plot`: where to
    draw the course of a storm; None: nowhere."""

    queues: int
    quick: bool
    seconds: float
    data: Path
    seed: int = 1
    plot: Path | None = None

    def seconds_of(self, bench: str) -> float:
        return self.seconds or (SECONDS_QUICK if self.quick else SECONDS_DEFAULT)[bench]
