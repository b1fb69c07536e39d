"""Computes how many crowds are online, and how fast that changes: the shapes that Locust follows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from shoal_loadtest.residents.limits import CROWDS


@dataclass(frozen=True, slots=True)
class Stage:
    """Describes one stage of a shape: `crowds` are online from `at_share` of the duration on. `per_s`: how many may
    come or go per second."""

    at_share: float
    crowds: int
    per_s: float


ALL_AT_ONCE = float(CROWDS)

STEADY = (Stage(0.0, CROWDS, ALL_AT_ONCE),)
LOGIN_RUSH = (Stage(0.0, CROWDS // 2, ALL_AT_ONCE), Stage(0.2, CROWDS, CROWDS / 20))
REGION_RESTART = (
    Stage(0.0, CROWDS, ALL_AT_ONCE),
    Stage(0.2, CROWDS * 6 // 10, ALL_AT_ONCE),
    Stage(0.4, CROWDS, ALL_AT_ONCE),
)
"""Steady: all crowds, all the time. Login rush: half of them, then the other half within ten seconds at best. Region
restart: two fifths leave at once, and return at once a while later."""

SHAPES: dict[str, tuple[Stage, ...]] = {
    "steady": STEADY,
    "login-rush": LOGIN_RUSH,
    "region-restart": REGION_RESTART,
}


def stage_at(shape: str, elapsed_s: float, duration_s: float) -> Stage | None:
    """Returns the stage `elapsed_s` after the warm-up; None when the time is over."""
    if elapsed_s >= duration_s:
        return None
    started = [stage for stage in SHAPES[shape] if stage.at_share * duration_s <= elapsed_s]
    return started[-1]
