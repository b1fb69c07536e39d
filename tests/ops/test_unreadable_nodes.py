"""`shoal check` of several nodes, one of which cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_contract.errors import Corrupt
from shoal_ops.commands import offline
from shoal_ops.exits import FOUND


def test_a_node_that_cannot_be_read_is_never_called_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreadable(*_: object) -> None:
        raise Corrupt("made up", subject="store")

    monkeypatch.setattr(offline, "nodes_below", lambda path: [path / "n01"])
    monkeypatch.setattr(offline, "check_path", unreadable)
    assert offline.check(tmp_path, checksum=False, as_json=False) == FOUND
    out = capsys.readouterr().out
    assert out.strip().endswith(offline.WRONG) and "n01" in out
