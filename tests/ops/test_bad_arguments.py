"""Arguments that are refused before a cluster is asked: they end with 2, and name what was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from .command_line import check_bad_argument

LAST = "offset is 9223372036854775807; it needs 0 to 9223372036854775806"
REFUSED = [
    (("up", "--slices", "0"), "'--slices': Input should be greater than or equal to 1"),
    (("up", "--slices", "65"), "'--slices': Input should be less than or equal to 64"),
    (("demo", "--slices", "65"), "'--slices': Input should be less than or equal to 64"),
    (("up", "--archive", ""), "'--archive': give the path of a folder"),
    (("admin", "--metrics", "x"), "'--metrics': x needs HOST:PORT"),
    (("declare", "anna", "--ack-timeout-ms", "5"), "'--ack-timeout-ms': ack_timeout_ms is 5; it needs at least 100"),
    (("ack", "anna", "room", "9223372036854775807"), LAST),
    (("nack", "anna", "room", "1-9223372036854775807"), LAST),
]


@pytest.mark.parametrize(("arguments", "complaint"), REFUSED)
async def test_a_value_out_of_its_range_is_a_bad_argument(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    await check_bad_argument(tmp_path, arguments, complaint)
