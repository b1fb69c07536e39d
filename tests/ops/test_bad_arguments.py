"""Arguments that are refused before a cluster is asked: they end with 2, and name what was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_ops import exits

from .command_line import check_bad_argument, shoal

LAST = "offset is 9223372036854775807; it needs 0 to 9223372036854775806"
REFUSED = [
    (("up", "--slices", "0"), "'--slices': Input should be greater than or equal to 1"),
    (("up", "--slices", "65"), "'--slices': Input should be less than or equal to 64"),
    (("demo", "--slices", "65"), "'--slices': Input should be less than or equal to 64"),
    (("up", "--archive", ""), "'--archive': give the path of a folder"),
    (("admin", "--metrics", "x"), "'--metrics': x needs HOST:PORT"),
    (("declare", "anna", "--ack-timeout-ms", "5"), "'--ack-timeout-ms': ack_timeout_ms is 5; it needs at least 100"),
    (("publish", "room", "x", "--not-before", "tomorrow"), "'--not-before': 'tomorrow' is no time"),
    (
        ("publish", "room", "x", "--not-before", "2030-01-01T10:00"),
        "'--not-before': '2030-01-01T10:00' has no time zone",
    ),
    (("farewell", "anna"), "'KEY': name the KEY of a farewell"),
    (("repair", "node"), "'--skip' / '--cut': say what to repair"),
    (("ack", "anna", "room", "9223372036854775807"), LAST),
    (("nack", "anna", "room", "1-9223372036854775807"), LAST),
]


@pytest.mark.parametrize(("arguments", "complaint"), REFUSED)
async def test_a_value_out_of_its_range_is_a_bad_argument(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    await check_bad_argument(tmp_path, arguments, complaint)


@pytest.mark.parametrize(
    "arguments", [("declare", "anna", ""), ("bind", "anna", ""), ("publish", "", "x"), ("describe", ""), ("purge", "")]
)
async def test_a_name_that_nothing_can_have_is_refused_before_a_cluster_is_looked_for(
    arguments: tuple[str, ...],
) -> None:
    """It took 10 s to say so where none was there."""
    code, out, error = await shoal(*arguments)
    assert (code, out) == (exits.BAD_CALL, "")
    assert error.startswith("shoal: ") and "needs 1 to 255" in error and error.count("\n") == 1
