"""Does one run: everything about it follows from its seed. Shrinks and reports a run that fails."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tests.lifetimes.steps import WEIGHTS, Step
from tests.lifetimes.world import World

STEPS = (60, 160)


class Failure(NamedTuple):
    """Says in which step a run failed, and how."""

    what: str
    error: Exception


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
        world = World()
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


def shrink(seed: int) -> list[int]:
    """Leaves out steps, in ever smaller stretches, as long as the run still fails. Returns the numbers of the rest."""
    kept = list(range(len(plan(seed))))
    stretch = len(kept) // 2
    while stretch:
        begin = 0
        while begin < len(kept):
            fewer = kept[:begin] + kept[begin + stretch :]
            if attempt(seed, fewer) is not None:
                kept = fewer
            else:
                begin += stretch
        stretch //= 2
    return kept


def report(seed: int) -> str:
    """Returns the report of a failed run: the shortest run found that fails, and how to repeat it."""
    kept = shrink(seed)
    failure = attempt(seed, kept)
    if failure is None:
        return f"seed {seed} failed once and then no more: something in it does not follow from the seed"
    steps = plan(seed)
    words = " ".join(f"[{number} {steps[number][0].__name__}]" for number in kept)
    trace = "".join(traceback.format_exception(failure.error)[-4:])
    again = f"python -m tests.lifetimes {seed} --steps {','.join(map(str, kept))}"
    return f"{words}\n{trace}\nfailed in {failure.what}: {failure.error}\nagain: {again}"
