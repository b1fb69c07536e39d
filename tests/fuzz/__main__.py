"""`python -m tests.fuzz SEED` repeats one run. `--runs N`, `--minutes M`: many, from SEED on or from a random seed."""

from __future__ import annotations

import sys

from tests.fuzz.runs import Plan, attempt, plan, report
from tests.fuzzing import Case, Fuzzer, main


def planned(case: Case) -> Plan:
    found = plan(case.seed)
    if case.limits is None:
        return found
    pairs = [pair.partition("=") for pair in case.limits.split(",") if pair]
    return found._replace(limits={name: int(value) for name, _, value in pairs})


FUZZER = Fuzzer(
    "fuzz",
    lambda case, only: attempt(planned(case), only),
    lambda case: report(case.seed, planned(case)),
    takes_limits=True,
)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
