"""Headers on the command line: how they are given, and how messages show them."""

from __future__ import annotations

import json
from typing import cast

import pytest
import typer

import shoal
from shoal_ops.commands.verbs import tell_message
from shoal_ops.headers import headers_json, parse_headers


class Told:
    """A message with these headers, as far as it is shown."""

    queue, key, offset, time_ms, redelivered, live, expires_ms = "q", "dead", 3, 5, 0, False, 9
    queue_bytes, key_bytes, body = b"q", b"dead", b"mail 7"

    def __init__(self, headers: dict[str, bytes]) -> None:
        self.headers = headers


def tell(headers: dict[str, bytes], as_json: bool) -> None:
    tell_message(cast(shoal.Message, Told(headers)), as_json)


def test_headers_are_given_as_name_and_value() -> None:
    assert parse_headers(["from=anna", "sum=1=1", "empty="]) == {"from": b"anna", "sum": b"1=1", "empty": b""}
    assert parse_headers(None) is None and parse_headers([]) is None


@pytest.mark.parametrize("texts", [["x"], ["=x"], [""], ["a=1", "a=1"]])
def test_what_is_no_header_or_comes_twice_is_a_bad_argument(texts: list[str]) -> None:
    with pytest.raises(typer.BadParameter, match=r"needs NAME=VALUE|is given twice"):
        parse_headers(texts)


def test_json_has_every_header(capsys: pytest.CaptureFixture[str]) -> None:
    tell({"from": b"anna", "raw": b"\xff"}, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["headers"], found["headers_hex"], found["expires_ms"]) == ({"from": "anna"}, {"raw": "ff"}, 9)
    assert headers_json({}) == {}


def test_text_says_why_a_message_is_a_dead_letter(capsys: pytest.CaptureFixture[str]) -> None:
    tell({"from": b"anna", "shoal-reason": b"nack", "shoal-key": b"k\x1b[2J"}, as_json=False)
    assert capsys.readouterr().out == "q dead 3 [shoal-reason=nack shoal-key=k\\x1b[2J] mail 7\n"
    tell({"from": b"anna"}, as_json=False)
    assert capsys.readouterr().out == "q dead 3 mail 7\n"
