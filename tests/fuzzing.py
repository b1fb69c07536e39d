"""Does what all fuzzers do: reads the command line, does many runs, leaves out steps of one that fails, and reports it.

Not here: what a run is (tests/fuzz/runs.py, tests/lifetimes/runs.py).
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

SEEDS = 1 << 40


class Failure(NamedTuple):
    """Says in which step a run failed, and how. `told` returns what happened in the steps before."""

    what: str
    error: BaseException
    told: Callable[[], str] = str


class Case(NamedTuple):
    """Says which run is meant. `limits`: those given in place of its own, as NAME=N,NAME=N; None: its own."""

    seed: int
    limits: str | None = None


class Fuzzer(NamedTuple):
    """Describes a fuzzer. `attempt` does a run, or only some of its steps, and returns how it failed, or None. `report`
    returns the report of a run that fails. `takes_limits`: its runs have small limits."""

    name: str
    attempt: Callable[[Case, Sequence[int] | None], Failure | None]
    report: Callable[[Case], str]
    takes_limits: bool = False


def main(fuzzer: Fuzzer, arguments: Sequence[str] | None = None) -> int:
    """Repeats a run, or does many, as the command line says. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.{fuzzer.name}",
        description="SEED repeats one run. --runs N, --minutes M: many, from SEED on or from a random seed.",
    )
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--steps", help="only these of its steps, as a failure lists them")
    if fuzzer.takes_limits:
        parser.add_argument("--limits", help="these instead of its own: NAME=N,NAME=N")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0)
    given = parser.parse_args(arguments)
    if given.runs or given.minutes:
        first = secrets.randbelow(SEEDS) if given.seed is None else given.seed
        return many(fuzzer, first, given.runs or SEEDS, given.minutes or 1e9)
    if given.seed is None:
        parser.error("SEED, --runs or --minutes is needed")
    case = Case(given.seed, given.limits if fuzzer.takes_limits else None)
    only = [int(number) for number in given.steps.split(",")] if given.steps else None
    failure = fuzzer.attempt(case, only)
    if failure is None:
        return 0
    if only is None:
        sys.stdout.write(fuzzer.report(case) + "\n")
        return 1
    sys.stdout.write(f"{failure.told()}\nfailed in {failure.what}\n")
    raise failure.error


def many(fuzzer: Fuzzer, first: int, runs: int, minutes: float) -> int:
    """Does many runs, and stops at the first failure, or when the time is over. Prints each minute how far it is.
    Returns the exit code."""
    began = told = time.monotonic()
    done = 0
    while done < runs and (now := time.monotonic()) - began <= minutes * 60:
        case = Case(first + done)
        if fuzzer.attempt(case, None) is not None:
            sys.stdout.write(fuzzer.report(case) + "\n")
            return 1
        done += 1
        if now - told > 60:
            told = now
            sys.stdout.write(f"{done:,} runs\n")
            sys.stdout.flush()
    sys.stdout.write(f"{done:,} runs of tests.{fuzzer.name} from seed {first} on: nothing found\n")
    return 0


def fewer_steps(count: int, fails: Callable[[list[int]], bool], seconds: float = 60) -> list[int]:
    """Leaves out steps of a run with `count` of them, in ever smaller stretches, as long as it still fails, and there
    is time. Returns the numbers of the rest."""
    until = time.monotonic() + seconds
    kept = list(range(count))
    stretch = len(kept) // 2
    while stretch:
        begin = 0
        while begin < len(kept) and time.monotonic() < until:
            fewer = kept[:begin] + kept[begin + stretch :]
            if fails(fewer):
                kept = fewer
            else:
                begin += stretch
        stretch //= 2
    return kept


def report_of(failure: Failure | None, head: str, again: str) -> str:
    """Returns the report of a run that failed. `failure`: that of the shortest run found. `again`: the arguments that
    repeat it."""
    if failure is None:
        return f"it failed once and then no more: something in it does not follow from the seed ({again})"
    trace = "".join(traceback.format_exception(failure.error)[-4:])
    return f"{head}\n{trace}\nfailed in {failure.what}: {failure.error}\nagain: python -m {again}"
