"""What others wrote is fit for a terminal: nothing in it can act on one, and what people write stays readable."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from pathlib import Path

import pytest

from shoal_ops.printable import printable, printable_bytes

from .command_line import WAIT_S

HOSTILE = "esc\x1b]0;pwned\x07\x1b[2J\nfake-queue\x9b31m\u202egnp.exe\u2028"
TELLS = f"""
from shoal_ops import output
from shoal_ops.printable import for_stdout
output.say({HOSTILE!r})
output.remark({HOSTILE!r})
output.table(("name",), [({HOSTILE!r},)])
output.say_json({{"name": {HOSTILE!r}}})
output.say_exactly(for_stdout({HOSTILE.encode()!r}))
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("esc\x1b[2J", "esc\\x1b[2J"),
        ("two\nlines\ttab", "two\\x0alines\\x09tab"),
        ("csi\x9b31m", "csi\\x9b31m"),
        ("rtl\u202e", "rtl\\u202e"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("lone\ud800", "lone\\ud800"),
        ("a\\b", "a\\b"),
    ],
)
def test_what_a_terminal_acts_on_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["Zürich 🐟", "می\u200cشود", "村\u3000人", "👨\u200d👩\u200d👧", "a b", ""])
def test_what_people_write_stays(text: str) -> None:
    assert printable(text) == text


def test_bytes_that_are_no_text_are_escaped() -> None:
    assert printable_bytes(b"\xff\x1b ok") == "\\xff\\x1b ok"


async def test_nothing_told_to_a_terminal_can_control_it() -> None:
    terminal, end = pty.openpty()
    plain = {**os.environ, "TERM": "dumb"}  # else the table's head comes in bold
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", TELLS, stdout=end, stderr=end, env=plain)
    os.close(end)
    async with asyncio.timeout(WAIT_S):
        assert await process.wait() == 0
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert shown.count("fake-queue") == 5
    assert {one for one in shown if not one.isprintable()} == {"\r", "\n"}
    assert "\\x1b" in shown and "\\u202e" in shown


async def test_a_pipe_gets_bodies_as_they_are(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TELLS, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(WAIT_S):
        out, _ = await process.communicate()
    lines = out.decode()
    assert lines.endswith(HOSTILE + "\n")
    assert lines.index("\x1b") == len(lines) - len(HOSTILE) - 1 + HOSTILE.index("\x1b"), "names are escaped there too"
