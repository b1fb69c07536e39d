"""A log that bad input cannot fill."""

from __future__ import annotations

import logging

import pytest

from shoal_runtime.rare_log import RareLog


def test_at_most_so_many_lines_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    rare = RareLog(logging.getLogger("rare"), 2.0, lambda: now)
    for number in range(1000):
        rare.warning("bad request %d from %s", number, "peer")
        now += 0.01
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 20
    assert lines[0] == "bad request 0 from peer"
    assert lines[1] == "bad request 50 from peer (49 more such lines were left out)"
