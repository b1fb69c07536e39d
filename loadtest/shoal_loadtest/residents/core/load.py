"""Computes the evaluation's load table times a scale factor, and the rates that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

from shoal_loadtest.residents.core.sessions import SESSION_S_MEAN
from shoal_loadtest.residents.limits import (
    GROUP_CHURN_PER_S,
    GROUPS,
    MEMBERSHIP_CHURN_PER_S,
    MEMBERSHIPS,
    MESSAGES_PER_S,
    RESIDENTS,
)


@dataclass(frozen=True, slots=True)
class Load:
    """Holds the populations and rates (per second) of a whole run, or of one generator's part of it."""

    residents: int
    groups: int
    memberships: int
    membership_churn_per_s: float
    group_churn_per_s: float
    messages_per_s: float
    pace: float = 1.0
    """Everything happens so many times faster than in the evaluation, with sessions shorter by the same factor."""

    @property
    def moves_per_s(self) -> float:
        """Returns the rate of residents that leave one group and join another: the membership churn that sessions do
        not explain."""
        return max(0.0, self.membership_churn_per_s / 2 - self.pace * self.memberships / SESSION_S_MEAN)


def load_at(scale: float, pace: float = 1.0) -> Load:
    """Returns the load at a scale. `pace` is for short runs of small populations, in which hardly anything would
    happen."""
    return Load(
        round(RESIDENTS * scale),
        round(GROUPS * scale),
        round(MEMBERSHIPS * scale),
        MEMBERSHIP_CHURN_PER_S * scale * pace,
        GROUP_CHURN_PER_S * scale * pace,
        MESSAGES_PER_S * scale * pace,
        pace,
    )


def part_of(load: Load, parts: int) -> Load:
    """Returns one of `parts` equal parts: groups do not span generators."""
    return Load(
        load.residents // parts,
        load.groups // parts,
        load.memberships // parts,
        load.membership_churn_per_s / parts,
        load.group_churn_per_s / parts,
        load.messages_per_s / parts,
        load.pace,
    )
