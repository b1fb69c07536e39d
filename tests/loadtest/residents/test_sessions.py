"""Session lengths and arrivals add up to the stated rates."""

from __future__ import annotations

import random
from math import log

import pytest

from shoal_loadtest.residents.core.load import load_at
from shoal_loadtest.residents.core.sessions import SESSION_S_MEAN, Arrivals, rest_s, session_s
from shoal_loadtest.residents.limits import MEMBERSHIP_CHURN_PER_S, SESSION_S_MAX, SESSION_S_MIN

MANY = 100_000


def test_sessions_are_log_uniform_from_15_seconds_to_12_hours() -> None:
    source = random.Random(1)
    lengths = [session_s(source) for _ in range(MANY)]

    assert SESSION_S_MIN <= min(lengths) < 2 * SESSION_S_MIN
    assert SESSION_S_MAX / 2 < max(lengths) <= SESSION_S_MAX
    assert sum(lengths) / MANY == pytest.approx(SESSION_S_MEAN, rel=0.02)
    share = sum(length < 60 for length in lengths) / MANY
    assert share == pytest.approx(log(60 / SESSION_S_MIN) / log(SESSION_S_MAX / SESSION_S_MIN), rel=0.05)


def test_those_found_online_leave_at_the_rate_at_which_others_come() -> None:
    """Of N online, N / mean leave in a second, from the first second on. Within 15 s none of them is a newcomer."""
    source = random.Random(2)
    leaving = sum(rest_s(source) < SESSION_S_MIN for _ in range(MANY * 5))

    assert leaving == pytest.approx(MANY * 5 * SESSION_S_MIN / SESSION_S_MEAN, rel=0.08)


@pytest.mark.parametrize(("scale", "pace"), [(1, 1), (4, 1), (0.02, 50)])
def test_logins_logouts_and_moves_make_the_membership_churn(scale: float, pace: float) -> None:
    load = load_at(scale, pace)
    changes = 2 * pace * load.memberships / SESSION_S_MEAN + 2 * load.moves_per_s

    assert changes == pytest.approx(MEMBERSHIP_CHURN_PER_S * scale * pace, rel=1e-3)
    assert load.moves_per_s > 0


def test_arrivals_come_at_their_rate_and_in_order_however_often_one_looks() -> None:
    for step_s in (0.01, 7.0):
        arrivals = Arrivals(random.Random(3), 100.0)
        now_s = 100.0
        due: list[float] = []
        while now_s < 1100:
            now_s += step_s
            due += arrivals.due(now_s, 20.0)
        assert len(due) == pytest.approx(20_000, rel=0.04)
        assert due == sorted(due)
        assert due[0] >= 100


def test_nothing_arrives_at_rate_zero() -> None:
    arrivals = Arrivals(random.Random(3), 0.0)

    assert list(arrivals.due(1e6, 0.0)) == []
    assert len(list(arrivals.due(1e6 + 100, 1.0))) == pytest.approx(100, abs=50)
