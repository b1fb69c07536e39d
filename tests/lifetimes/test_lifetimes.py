"""Does some hundred runs of the fuzzer of lifetimes, the same each time; `make soak` makes others."""

from __future__ import annotations

import pytest

from tests.fuzzing import Case
from tests.lifetimes.runs import attempt, plan, report

RUNS = 100


def test_no_step_breaks_a_promise() -> None:
    for seed in range(RUNS):
        if attempt(plan(Case(seed))) is not None:
            pytest.fail(report(Case(seed)))
