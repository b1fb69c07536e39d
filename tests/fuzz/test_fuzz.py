"""Does six hundred runs of the fuzzer: the same ones each time; `make soak` makes others."""

from __future__ import annotations

import pytest

from tests.fuzz.runs import attempt, plan, report
from tests.fuzz.world import World

RUNS = 600
RUNS_PER_TEST = 100


@pytest.mark.parametrize("first", range(0, RUNS, RUNS_PER_TEST))
def test_no_step_breaks_a_promise(first: int) -> None:
    for seed in range(first, first + RUNS_PER_TEST):
        found = plan(seed)
        if attempt(found) is not None:
            pytest.fail(report(seed, found))


def test_what_is_wrong_with_an_answer_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a failed check in a callback ends the run. The node swallows what its callbacks raise, so two checks
    of the fuzzer could not fail before."""

    def never(*_: object) -> None:
        raise AssertionError("not so")

    monkeypatch.setattr(World, "_check_live", staticmethod(never))
    failure = attempt(plan(0))
    assert failure is not None and str(failure.error) == "not so"
