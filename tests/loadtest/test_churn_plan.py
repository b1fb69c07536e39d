"""The plan of logins and logouts is true to the population: nobody leaves twice or comes without having left."""

from __future__ import annotations

import random

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.churn import ChurnPlan
from shoal_loadtest.frames import numbered
from shoal_loadtest.limits import CHURN_AWAY_SHARE, CHURN_QUEUES_PER_FRAME, CHURN_SESSIONS, MEMBERSHIPS_PER_QUEUE
from shoal_loadtest.population import Population


@pytest.mark.parametrize("out", [frozenset[int](), frozenset(range(0, 200, 3))])
def test_queues_leave_when_in_and_come_when_out(out: frozenset[int]) -> None:
    population = Population(4_000)
    plans = [ChurnPlan(population, share, random.Random(share), out) for share in range(CHURN_SESSIONS)]
    away = set(out)
    for number in range(300):
        for plan in plans:
            planned = plan.next()
            assert len(planned.leaving) + len(planned.coming) == CHURN_QUEUES_PER_FRAME
            assert away.isdisjoint(planned.leaving)
            assert away.issuperset(planned.coming)
            away = (away | set(planned.leaving)) - set(planned.coming)
        if number >= plans[0].ramp_frames:
            share = len(away) / population.queues
            assert share == pytest.approx(CHURN_AWAY_SHARE, abs=0.05)


def test_numbered_frame_is_one_request() -> None:
    plan = ChurnPlan(Population(4_000), 0, random.Random(1), frozenset())

    request = wire.SessionRequest.FromString(numbered(plan.next().frame, 7, 5))

    assert (request.sequence, request.settled) == (7, 5)
    unbinds = wire.Change.FromString(request.change).steps[0].unbinds
    assert len(unbinds.queues) == CHURN_QUEUES_PER_FRAME
    assert len(unbinds.keys) == CHURN_QUEUES_PER_FRAME * MEMBERSHIPS_PER_QUEUE
