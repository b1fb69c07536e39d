"""`python -m tests.lifetimes SEED` repeats one run. `--runs N`, `--minutes M`: many, from SEED or a random one on."""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.lifetimes.runs import attempt, report

SEEDS = 1 << 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lifetimes", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--steps", help="only these of its steps, as a failure lists them")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0)
    arguments = parser.parse_args()
    if arguments.runs or arguments.minutes:
        first = secrets.randbelow(SEEDS) if arguments.seed is None else arguments.seed
        return several(first, arguments.runs or SEEDS, arguments.minutes or 1e9)
    if arguments.seed is None:
        parser.error("SEED, --runs or --minutes is needed")
    only = [int(number) for number in arguments.steps.split(",")] if arguments.steps else None
    failure = attempt(arguments.seed, only)
    if failure is None:
        return 0
    if only is None:
        sys.stdout.write(report(arguments.seed) + "\n")
        return 1
    sys.stdout.write(f"failed in {failure.what}\n")
    raise failure.error


def several(first: int, runs: int, minutes: float) -> int:
    """Does runs until one fails, or the time is over."""
    until = time.monotonic() + minutes * 60
    done = 0
    while done < runs and time.monotonic() < until:
        if attempt(first + done) is not None:
            sys.stdout.write(report(first + done) + "\n")
            return 1
        done += 1
    sys.stdout.write(f"{done:,} runs of lifetimes from seed {first} on: nothing found\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
