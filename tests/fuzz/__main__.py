"""`python -m tests.fuzz SEED` repeats one run. `--runs N`, `--minutes M`: many, from SEED on or from a random seed."""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.fuzz.runs import attempt, plan, report

SEEDS = 1 << 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--steps", help="only these of its steps, as a failure lists them")
    parser.add_argument("--limits", help="these instead of its own: NAME=N,NAME=N")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0)
    arguments = parser.parse_args()
    if arguments.runs or arguments.minutes:
        first = secrets.randbelow(SEEDS) if arguments.seed is None else arguments.seed
        return many(first, arguments.runs or SEEDS, arguments.minutes or 1e9)
    if arguments.seed is None:
        parser.error("SEED, --runs or --minutes is needed")
    found = plan(arguments.seed)
    if arguments.limits is not None:
        pairs = [pair.partition("=") for pair in arguments.limits.split(",") if pair]
        found = found._replace(limits={name: int(value) for name, _, value in pairs})
    if not arguments.steps:
        if attempt(found) is None:
            return 0
        sys.stdout.write(report(arguments.seed, found) + "\n")
        return 1
    failure = attempt(found, [int(number) for number in arguments.steps.split(",")])
    if failure is None:
        return 0
    sys.stdout.write(f"{failure.told()}\nfailed in {failure.what}\n")
    raise failure.error


def many(first: int, runs: int, minutes: float) -> int:
    """Does many runs, and stops at the first failure. Prints each minute how far it is."""
    began = told = time.monotonic()
    for seed in range(first, first + runs):
        found = plan(seed)
        if attempt(found) is not None:
            sys.stdout.write(report(seed, found) + "\n")
            return 1
        now = time.monotonic()
        if now - began > minutes * 60:
            runs = seed + 1 - first
            break
        if now - told > 60:
            told = now
            sys.stdout.write(f"{seed + 1 - first:,} runs\n")
            sys.stdout.flush()
    sys.stdout.write(f"{runs:,} runs from seed {first} on: nothing found\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
