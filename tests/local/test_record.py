"""The record of a local cluster: what cannot be a record is named, and is no traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal_contract.errors import Corrupt
from shoal_local.limits import SLICES_MAX
from shoal_local.record import FORM, RECORD, LocalRecord, read_record

SOUND: dict[str, Any] = {"form": FORM, "id": "0123", "slices": ["s01"], "ports": {"s01": 20123}}


def test_a_record_is_read_as_it_was_saved(tmp_path: Path) -> None:
    record = LocalRecord(["s01"], {"s01": 65_535}, "0123")
    record.save(tmp_path)
    assert read_record(tmp_path) == record
    assert not record.settle(tmp_path), "where a record of an earlier version was is not known"
    record.save(tmp_path)
    assert read_record(tmp_path) == record


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "recursion"),
        (json.dumps({**SOUND, "ports": {"s01": 99_999}}), "port 99999 of s01 is not in 1 to 65535"),
        (json.dumps({**SOUND, "ports": {"s01": 0}}), "port 0 of s01"),
        (json.dumps({**SOUND, "ports": {"s01": 1e400}}), "port of s01 is inf, which is no whole number"),
        (json.dumps({**SOUND, "lives": {"s01": {"epoch": 1, "incarnation": "", "lsn": 1e400}}}), "lsn of s01 is inf"),
        (json.dumps({**SOUND, "place": "here"}), "has no attribute 'items'"),
        (json.dumps({**SOUND, "slices": "s01"}), "its slices are no list of names"),
        (json.dumps({**SOUND, "slices": [["a"]]}), "its slices are no list of names"),
        (json.dumps({**SOUND, "slices": [f"s{n}" for n in range(SLICES_MAX + 1)]}), "65 slices; 1 to 64 can run here"),
        (json.dumps({**SOUND, "slices": []}), "0 slices"),
        (json.dumps({**SOUND, "form": "another"}), "its form is 'another'"),
        ("{", "Expecting"),
    ],
)
def test_what_is_no_record_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(Corrupt, match=f"{RECORD} cannot be read .*{said}"):
        read_record(tmp_path)
