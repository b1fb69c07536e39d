"""`shoal bind --start`: each word is its start, and what is none is refused before anything is sent."""

from __future__ import annotations

import pytest
import typer

import shoal
from shoal_ops.starts import checked_start, parse_start

from .command_line import shoal as shoal_command


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("now", shoal.NOW),
        ("earliest", shoal.EARLIEST),
        ("last=20", shoal.Last(20)),
        ("last=0", shoal.Last(0)),
        ("offset=7", shoal.Offset(7)),
        ("ago=3600", shoal.Ago(3600)),
    ],
)
def test_a_word_is_its_start(text: str, start: shoal.Start) -> None:
    assert parse_start(checked_start(text)) == start


@pytest.mark.parametrize(
    "text", ["", "latest", "last", "last=", "last=x", "offset=-1", "ago=", "7", "last=" + "9" * 20]
)
def test_another_word_is_a_bad_argument(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="now, earliest, last=N, ago=SECONDS or offset=N"):
        checked_start(text)


@pytest.mark.parametrize("text", ["ago=0", "last=" + "9" * 19])
async def test_a_number_that_no_start_has_is_a_bad_argument_too(text: str) -> None:
    code, out, error = await shoal_command("bind", "anna", "room", "--start", text)
    assert (code, out) == (2, "")
    assert f"Invalid value for '--start': --start {text}: " in error


def test_a_number_above_every_offset_is_out_of_range() -> None:
    with pytest.raises(shoal.OutOfRange, match="offset is 9999999999999999999; it needs"):
        parse_start("offset=" + "9" * 19)
