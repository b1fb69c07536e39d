"""`python -m tests.lifetimes SEED` repeats one run. `--runs N`, `--minutes M`: many, from SEED or a random one on."""

from __future__ import annotations

import sys

from tests.fuzzing import Fuzzer, main
from tests.lifetimes.runs import attempt, plan, report

FUZZER = Fuzzer("lifetimes", lambda case, only: attempt(plan(case), only), report, takes_limits=True)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
