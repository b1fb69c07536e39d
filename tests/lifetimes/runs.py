"""Does one run: everything about it follows from its seed. Shrinks and reports a run that fails."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tests.fuzz import small_limits
from tests.fuzzing import Case, Failure, fewer_steps, report_of
from tests.lifetimes.steps import WEIGHTS, Step
from tests.lifetimes.told import Run

STEPS = (60, 160)
AS_THEY_ARE = {"CONSUMERS_PER_QUEUE_MAX", "ATTACHED_PER_SESSION_MAX", "LEASES_BEGUN_PER_TICK", "LEASES_PER_TURN"}
"""The limits that are never small here: sessions would be refused a queue, and ack timeouts begin or end with later
ticks."""


class Plan(NamedTuple):
    """The plan of a run. `limits`: the small ones, in half of the runs. `steps`: each with the number that seeds its
    choices."""

    limits: dict[str, int]
    steps: list[tuple[Step, int]]


def plan(case: Case) -> Plan:
    random = Random(case.seed)
    chosen = random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=random.randint(*STEPS))
    steps = [(step, random.getrandbits(32)) for step in chosen]
    if case.limits is not None:
        pairs = [pair.partition("=") for pair in case.limits.split(",") if pair]
        return Plan({name: int(value) for name, _, value in pairs}, steps)
    limits = small_limits.choose(case.seed) if case.seed % 2 else {}
    return Plan({name: value for name, value in limits.items() if name not in AS_THEY_ARE}, steps)


def attempt(found: Plan, only: Sequence[int] | None = None) -> Failure | None:
    """Does a run, or only some of its steps. Returns how it failed, or None."""
    where = "the start"
    try:
        with small_limits.patched(found.limits):
            world = Run(found.limits)
            for number in range(len(found.steps)) if only is None else only:
                step, choices = found.steps[number]
                where = f"step {number}, {step.__name__}"
                step(world, Random(choices))
                world.look()
            where = "the end"
            world.finish()
    except Exception as error:
        return Failure(where, error)
    return None


def report(case: Case) -> str:
    """Returns the report of a failed run: the shortest run found that fails, and how to repeat it."""
    found = plan(case)
    kept = fewer_steps(len(found.steps), lambda fewer: attempt(found, fewer) is not None, 30)
    for name in found.limits:
        fewer = found._replace(limits={other: value for other, value in found.limits.items() if other != name})
        if attempt(fewer, kept) is not None:
            found = fewer
    limits = ",".join(f"{name}={value}" for name, value in found.limits.items())
    words = " ".join(f"[{number} {found.steps[number][0].__name__}]" for number in kept)
    again = f"tests.lifetimes {case.seed} --limits '{limits}' --steps {','.join(map(str, kept))}"
    return report_of(attempt(found, kept), words, again)
