"""Does some hundred runs of the fuzzer of lifetimes, the same each time, and checks that it finds planted defects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal_slice_node.core.apply import farewells, key_options, transients
from shoal_slice_node.core.dispatch import filling, gaps, sessions
from shoal_slice_node.core.dispatch.exclusive import Exclusives
from shoal_slice_node.core.dispatch.left_clock import LeftClock
from tests.lifetimes.runs import attempt, report

RUNS = 400
RUNS_TO_FIND = 120
"""The runs within which each planted defect must be found."""


def test_no_step_breaks_a_promise() -> None:
    for seed in range(RUNS):
        if attempt(seed) is not None:
            pytest.fail(report(seed))


def _nothing(*_: Any, **__: Any) -> None:
    """Does nothing, in the place of what a defect leaves out."""


def _tells(times: int) -> Callable[..., Any]:
    """Returns a `pass_over` that tells each gap so many times."""
    before = gaps.pass_over

    def pass_over(
        registry: Any, stream: Any, first: int, to: int, why: Any, pick: Any, tell: Any, lease_of: Any
    ) -> Any:
        def told(*arguments: Any) -> None:
            for _ in range(times):
                tell(*arguments)

        return before(registry, stream, first, to, why, pick, told, lease_of)

    return pass_over


def _early() -> Callable[..., Any]:
    before = LeftClock.due
    return lambda clock, now_ms: before(clock, now_ms + 700)


def _drops_more() -> Callable[..., Any]:
    before = key_options._low_with_room

    def low_with_room(tables: Any, key: Any, measure: Any) -> int:
        low = before(tables, key, measure)
        return min(low + 1, key.head) if low > key.low else low

    return low_with_room


def _says_newer(state: Any, queue_id: bytes, farewell: Any, number: int, _: int) -> None:
    farewells._say(state, queue_id, farewell, number)


def _full_at(part: float) -> Callable[..., Any]:
    """Returns a check by which a key that refuses what it has no room for is full at such a part of its capacity."""
    before = key_options._check_capacity

    def check_capacity(state: Any, full_name: bytes, key: Any, measure: tuple[int, int]) -> None:
        before(state, full_name, key, measure)
        messages = key.options.capacity_messages
        if messages and not key.options.drops_oldest and key.head - key.low + measure[0] > part * messages:
            raise key_options._full(state, full_name, "messages", messages, messages)

    return check_capacity


DEFECTS: dict[str, tuple[Any, str, Callable[[], Any]]] = {
    "what has expired is delivered": (filling, "has_expired", lambda: lambda *_: False),
    "what has expired is delivered for a while": (filling, "has_expired", lambda: lambda end, at: 0 < end <= at - 400),
    "a gap is not told": (filling, "pass_over", lambda: _tells(0)),
    "a gap is told twice": (filling, "pass_over", lambda: _tells(2)),
    "a farewell comes early": (LeftClock, "due", _early),
    "a queue's time does not begin when it is left": (LeftClock, "left", lambda: _nothing),
    "a queue's time does not begin anew": (LeftClock, "anew", lambda: _nothing),
    "a record that was not written is not decided again": (LeftClock, "again", lambda: _nothing),
    "a new leader begins no times": (LeftClock, "begin", lambda: _nothing),
    "a queue's end says no farewell": (transients, "say_at_end", lambda: _nothing),
    "a farewell that is set anew is said at once": (farewells, "_say_unless_newer", lambda: _says_newer),
    "a time that began anew is not heard": (LeftClock, "began_anew", lambda: lambda *_: False),
    "a farewell stays that is taken back": (farewells, "forget_farewell", lambda: _nothing),
    "more is dropped than must be": (key_options, "_low_with_room", _drops_more),
    "a key takes more than its capacity": (key_options, "_check_capacity", lambda: _nothing),
    "a key refuses everything": (key_options, "_check_capacity", lambda: _full_at(0)),
    "a key is full at half of its capacity": (key_options, "_check_capacity", lambda: _full_at(0.5)),
    "several sessions have an exclusive queue": (Exclusives, "of", lambda: _nothing),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, makes = DEFECTS[defect]
    monkeypatch.setattr(where, name, makes())
    if name == "has_expired":  # What waits to be sent is looked at again: one look alone would hide the other's defect.
        monkeypatch.setattr(sessions, name, makes())
    assert any(attempt(seed) is not None for seed in range(RUNS_TO_FIND)), f"not found: {defect}"
