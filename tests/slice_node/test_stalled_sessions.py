"""Where sessions wait for room for deliveries, those end that read nothing, whoever holds more or less beside them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shoal_slice_node.adapters import writers
from shoal_slice_node.adapters.limits import STALLED_DELIVERIES_MS, STALLED_SESSION_MS
from shoal_slice_node.adapters.writers import Writers
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares

LIMIT = 1_000


class Slice:
    """Sessions, each of a connection of its own, that hold so much and are being written to; one waits for room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, held: Sequence[int]) -> None:
        self.now_ms = 1_000
        monkeypatch.setattr(writers, "steady_ms", lambda: self.now_ms)
        self.shares = DispatchShares(deliveries_bytes=LIMIT)
        self.writers = Writers()
        self.sessions = [self._session(size_bytes) for size_bytes in held]
        for session in self.sessions:
            self.writers.began(session, int)
        self.shares.line.join(self._session(0))

    def _session(self, size_bytes: int) -> Session:
        number = len(self.writers)
        session = Session(number, 1 << 20, shares=self.shares, connection=str(number))
        self.writers.open(session, str(number), lambda: None, lambda: None)
        if size_bytes:
            self.shares.hold(session, size_bytes)
        return session

    def reads(self, number: int) -> None:
        """The client takes a response, and the next one is written."""
        self.writers.ended(self.sessions[number])
        self.writers.began(self.sessions[number], int)

    def ended_after(self, ms: int) -> list[int]:
        self.now_ms += ms
        return [session.number for session in self.writers.end_stalled_deliveries(self.shares)]


def test_one_that_reads_slowly_does_not_keep_those_behind_it_that_read_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two that read each 9 s kept seven that never did, and all that these held."""
    found = Slice(monkeypatch, [700, 60, 60, 50, 50, 50])
    found.now_ms += STALLED_SESSION_MS // 2
    for number in (1, 2):
        found.reads(number)
    found.now_ms += STALLED_SESSION_MS // 2 - 1
    found.reads(0)
    assert not found.ended_after(0)
    assert found.ended_after(1) == [3, 4, 5]


@pytest.mark.parametrize("tiny", [0, 50])
def test_those_that_hold_little_take_nothing_of_the_equal_part_of_others(
    monkeypatch: pytest.MonkeyPatch, tiny: int
) -> None:
    """An honest consumer that paused ended, as 120 others with 8 KB each made its equal part small."""
    found = Slice(monkeypatch, [400, 400, 150, *[1] * tiny])
    found.reads(0)
    found.reads(1)
    found.now_ms += STALLED_DELIVERIES_MS - 100
    found.reads(0)
    found.reads(1)
    assert not found.ended_after(100), "it holds less than an equal part"
    for _ in range(20):
        found.reads(0)
        found.reads(1)
        last = found.ended_after(STALLED_DELIVERIES_MS - 1)
        if last:
            break
    assert last[0] == 2 and found.now_ms >= 1_000 + STALLED_SESSION_MS


def test_those_that_end_already_and_what_they_leave_count(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Slice(monkeypatch, [400, 400, 200])
    assert found.ended_after(STALLED_DELIVERIES_MS) == [0, 1]
    assert not found.ended_after(1), "what these hold is about to be free"
    for number in (0, 1):
        held = found.sessions[number].under_way_bytes
        found.writers.close(found.sessions[number])
        found.shares.let_go(found.sessions[number], held)
        found.shares.hold_written(held)
    assert not found.ended_after(STALLED_SESSION_MS), "nor because transports still have it"
