"""Messages that pulls took and could not return: how many are kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shoal.late_messages import LateMessages, Taken

HELD: Any = SimpleNamespace(streaming=True, stream_number=1)
BODY = bytes(700)
"""With what is counted for a message besides, 1,000 bytes."""


class Told:
    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def error(self, error: Exception) -> None:
        self.errors.append(error)


def late(count: int) -> list[Taken]:
    return [Taken(SimpleNamespace(body=BODY, number=number), HELD, 1) for number in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_as_many_are_kept_as_may_be_however_often_some_were_dropped(rounds: int) -> None:
    told: Any = Told()
    messages = LateMessages(told, bytes_max=10_000)
    for number in range(rounds):
        messages.keep(b"q%d" % number, late(25))
    assert len(told.errors) == rounds
    kept = [len(messages.take(b"q%d" % number, 1_000)) for number in range(rounds)]
    assert kept == [0] * (rounds - 1) + [10]


def test_what_was_taken_makes_room() -> None:
    told: Any = Told()
    messages = LateMessages(told, bytes_max=10_000)
    for _ in range(5):
        messages.keep(b"q", late(10))
        assert len(messages.take(b"q", 100)) == 10
    assert not told.errors


def test_those_of_a_lost_stream_are_not_returned() -> None:
    told: Any = Told()
    messages = LateMessages(told)
    messages.keep(b"q", [one._replace(stream=number % 2) for number, one in enumerate(late(6))])
    assert [one.stream for one in messages.take(b"q", 100)] == [1, 1, 1]
