"""One form of errors for every server."""

from __future__ import annotations

import json

from shoal_contract import errors
from shoal_contract.errors import ShoalError
from shoal_runtime.http.problem import MEDIA_TYPE, STATUS, answer, title


def leaves(base: type[ShoalError]) -> set[type[ShoalError]]:
    below = base.__subclasses__()
    return {leaf for kind in below for leaf in leaves(kind)} if below else {base}


def test_every_typed_error_has_its_status() -> None:
    ours = {kind for kind in leaves(ShoalError) if kind.__module__ == errors.__name__}
    assert ours == set(STATUS)


def test_a_problem_says_what_and_how_much() -> None:
    answered = answer(errors.ResourceExhausted("streams: 9; the limit is 8", subject="streams", limit=8, value=9))
    assert (answered.status_code, answered.media_type) == (429, MEDIA_TYPE)
    assert answered.headers["retry-after"] == "1"
    assert json.loads(bytes(answered.body)) == {
        "type": "urn:shoal:error:ResourceExhausted",
        "title": "Resource exhausted",
        "status": 429,
        "detail": "streams: 9; the limit is 8",
        "subject": "streams",
        "limit": 8,
        "value": 9,
    }
    assert answer(errors.DeadlineExceeded("late"), 408).status_code == 408
    assert title("NoSuchQueue") == "No such queue"
