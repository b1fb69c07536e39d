"""What all fuzzers do with runs: a failure is made shorter, told with how to repeat it, and ends many runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.fuzzing import Case, Failure, Fuzzer, fewer_steps, main, report_of

FAILS = 13


def attempt(case: Case, only: Sequence[int] | None) -> Failure | None:
    """A run of 20 steps that fails for one seed, if steps 3 and 11 are done."""
    fails = case.seed == FAILS and {3, 11} <= set(range(20) if only is None else only)
    return Failure("step 11", ValueError("wrong"), lambda: "[3] [11]") if fails else None


def report(case: Case) -> str:
    kept = fewer_steps(20, lambda fewer: attempt(case, fewer) is not None)
    return report_of(attempt(case, kept), "head", f"tests.own {case.seed} --steps {','.join(map(str, kept))}")


FUZZER = Fuzzer("own", attempt, report)


def test_only_the_steps_that_it_takes_are_left() -> None:
    assert fewer_steps(20, lambda fewer: attempt(Case(FAILS), fewer) is not None) == [3, 11]
    assert fewer_steps(20, lambda _: True, seconds=0) == list(range(20)), "there is no time"


@pytest.mark.parametrize("arguments", [[str(FAILS)], ["5", "--runs", "20"], ["5", "--minutes", "1"]])
def test_a_failure_is_told_with_how_to_repeat_it(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FUZZER, arguments) == 1
    out = capsys.readouterr().out
    assert out.startswith("head\n") and out.endswith("again: python -m tests.own 13 --steps 3,11\n")
    assert "ValueError: wrong" in out and "failed in step 11: wrong" in out


def test_a_run_is_repeated_with_some_of_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FUZZER, [str(FAILS), "--steps", "3,4"]) == 0
    with pytest.raises(ValueError, match="wrong"):
        main(FUZZER, [str(FAILS), "--steps", "3,11"])
    assert capsys.readouterr().out == "[3] [11]\nfailed in step 11\n"


def test_runs_that_find_nothing_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FUZZER, ["0", "--runs", "13"]) == 0
    assert capsys.readouterr().out == "13 runs of tests.own from seed 0 on: nothing found\n"
