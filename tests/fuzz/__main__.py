"""`python -m tests.fuzz SEED`: one run again. `python -m tests.fuzz --runs N`, `--minutes M`: many."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.runs import attempt, plan, report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--steps", help="only these of its steps, as a failure lists them")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--limits", help="these instead of its own: NAME=N,NAME=N")
    arguments = parser.parse_args()
    if arguments.runs:
        began = time.process_time()
        first = arguments.seed or 0
        failed = 0
        for seed in range(first, first + arguments.runs):
            failure = attempt(plan(seed))
            if failure:
                failed += 1
                sys.stdout.write(f"{seed}: {failure.what}: {type(failure.error).__name__} {str(failure.error)[:150]}\n")
        sys.stdout.write(f"{failed} failed, {(time.process_time() - began) / arguments.runs * 1000:.1f} ms a run\n")
        return 0
    found = plan(arguments.seed)
    if arguments.limits is not None:
        found = found._replace(limits={n: int(v) for n, v in (x.split("=") for x in arguments.limits.split(",") if x)})
    if arguments.steps:
        failure = attempt(found, [int(x) for x in arguments.steps.split(",")])
        if failure:
            sys.stdout.write(failure.told() + f"\n{found.limits}\n{failure.what}: {failure.error}\n")
            raise failure.error
        return 0
    if attempt(found) is None:
        return 0
    sys.stdout.write(report(arguments.seed, found) + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
