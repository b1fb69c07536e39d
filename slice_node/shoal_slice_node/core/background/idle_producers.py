"""Finds producers that have been silent for long: walks over their rows, again and again, in bounded turns.

Silence is measured by the node's own clock, which only grows. Record times never go back: a leader whose clock is
behind gives its records the time of the newest one before it (core/node/commit). So, if a producer's last frame is
older than the record that was newest one day of that clock ago, it has been silent since. If the machine's clock jumps,
no producer is forgotten, and the time that a node was down does not count.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from shoal_contract.limits import PRODUCER_BYTES
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import PRODUCER_COST_MAX, PRODUCER_SAMPLE_MS, PRODUCERS_PER_TURN
from shoal_slice_node.core.rows.producer_row import decode_producer
from shoal_slice_node.core.rows.small_rows import idle_producer

_LAST_ANSWER = b"\xff" * 8


class IdleProducers:
    def __init__(self, state: State, idle_ms: int) -> None:
        self._state = state
        self._idle_ms = idle_ms
        self._position = b""
        self._samples: deque[tuple[int, int]] = deque()
        """Pairs (this node's clock, time of the newest record then), one in PRODUCER_SAMPLE_MS; neither goes back."""

    def turn(self, now_ms: int) -> list[bytes]:
        """Returns row keys for a RECLAIM record: some idle producers. `now_ms`: the time of a clock that only grows."""
        silent_since_ms = self._newest_before(now_ms)
        if not silent_since_ms:
            return []
        idle: list[bytes] = []
        cost = 0
        for _ in range(PRODUCERS_PER_TURN):
            found = next(islice(self._state.tables.producer.scan(start=self._position), 1), None)
            if found is None:
                self._position = b""
                break
            row_key, row = found
            self._position = row_key[:PRODUCER_BYTES] + _LAST_ANSWER  # Past its answers.
            if len(row_key) != PRODUCER_BYTES:
                continue
            producer = decode_producer(row)
            if producer.time_ms < silent_since_ms:
                idle.append(idle_producer(row_key, producer.time_ms))
                cost += len(producer.kept)
                if cost >= PRODUCER_COST_MAX:
                    break
        return idle

    def _newest_before(self, now_ms: int) -> int:
        """Returns the time of the record that was the newest `idle_ms` ago; 0: not known yet."""
        samples, state = self._samples, self._state
        if not samples or now_ms - samples[-1][0] >= PRODUCER_SAMPLE_MS:
            samples.append((now_ms, state.time_ms))
        while len(samples) > 1 and now_ms - samples[1][0] >= self._idle_ms:
            samples.popleft()
        taken_ms, newest_ms = samples[0]
        return newest_ms if now_ms - taken_ms >= self._idle_ms else 0
