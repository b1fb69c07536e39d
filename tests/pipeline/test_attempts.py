"""Attempts of a load: those that get further are not counted."""

from __future__ import annotations

import pytest

from shoal_contract.errors import Malformed, ResourceExhausted
from shoal_pipeline.bulk import attempts
from shoal_pipeline.bulk.attempts import again_if_away


class Tries:
    """An attempt that fails: `error`, so often."""

    def __init__(self, error: Exception, fails: int) -> None:
        self.error = error
        self.left = fails
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return "done"


CROWDED = ResourceExhausted("others wait for its place", subject="imports")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "RETRY_S", 0)


def test_attempts_that_get_further_are_not_counted() -> None:
    """Beside many other loads each attempt had its turn, six of them were not enough, and the load failed."""
    said: list[str] = []
    chunks = [0, 3, 3, 5, 5, 5, 5, 5, 9, *[9] * 5, 4]
    tries = Tries(CROWDED, 100)
    with pytest.raises(ResourceExhausted):
        again_if_away("s01", tries, said.append, iter(chunks).__next__)
    assert tries.made == len(chunks) - 1 and "others wait for its place); trying again, 6 times" in said[0]


def test_an_attempt_may_succeed_at_last_and_another_error_is_not_tried_again() -> None:
    assert again_if_away("s01", Tries(CROWDED, 5), print) == "done"
    bad = Tries(Malformed("no", subject="chunk"), 1)
    with pytest.raises(Malformed):
        again_if_away("s01", bad, print)
    assert bad.made == 1
