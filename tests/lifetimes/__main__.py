"""`python -m tests.lifetimes SEED` repeats one run. `--runs N`, `--minutes M`: many, from SEED or a random one on."""

from __future__ import annotations

import sys

from tests.fuzzing import Fuzzer, main
from tests.lifetimes.runs import attempt, report

FUZZER = Fuzzer("lifetimes", lambda case, only: attempt(case.seed, only), lambda case: report(case.seed))

if __name__ == "__main__":
    sys.exit(main(FUZZER))
