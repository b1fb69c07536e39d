"""Does one run: everything about it follows from its seed. Shrinks and reports a run that fails."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.fuzzing import Failure, fewer_steps, report_of
from tests.lifetimes.steps import WEIGHTS, Step
from tests.lifetimes.told import Run

STEPS = (60, 160)


def plan(seed: int) -> list[tuple[Step, int]]:
    """Returns the steps of a run, each with the number that seeds its choices."""
    random = Random(seed)
    chosen = random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=random.randint(*STEPS))
    return [(step, random.getrandbits(32)) for step in chosen]


def attempt(seed: int, only: Sequence[int] | None = None) -> Failure | None:
    """Does a run, or only some of its steps. Returns how it failed, or None."""
    steps = plan(seed)
    where = "the start"
    try:
        world = Run()
        for number in range(len(steps)) if only is None else only:
            step, choices = steps[number]
            where = f"step {number}, {step.__name__}"
            step(world, Random(choices))
            world.look()
        where = "the end"
        world.finish()
    except Exception as error:
        return Failure(where, error)
    return None


def report(seed: int) -> str:
    """Returns the report of a failed run: the shortest run found that fails, and how to repeat it."""
    steps = plan(seed)
    kept = fewer_steps(len(steps), lambda fewer: attempt(seed, fewer) is not None)
    words = " ".join(f"[{number} {steps[number][0].__name__}]" for number in kept)
    return report_of(attempt(seed, kept), words, f"tests.lifetimes {seed} --steps {','.join(map(str, kept))}")
