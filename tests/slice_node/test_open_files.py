"""A start says how many connections it takes only where they are few."""

from __future__ import annotations

import pytest

from shoal_slice_node.adapters import servers
from shoal_slice_node.adapters.limits import SESSIONS_MAX


@pytest.mark.parametrize(("files", "told"), [(1_024, True), (20_000, False)])
def test_a_bound_of_connections_is_told_where_it_is_low(
    files: int, told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(servers, "raise_open_files", lambda: files)
    assert servers._connections_max(4 << 30) < SESSIONS_MAX
    assert ("ulimit -n" in caplog.text) is told
