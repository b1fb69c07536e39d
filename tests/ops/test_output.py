"""What the command line writes to a terminal cannot act on it, whatever names and bodies hold."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from pathlib import Path

import pytest

import shoal as client

from .command_line import WAIT_S, shoal

HOSTILE = "esc\x1b]0;pwned\x07\x1b[2J\nfake-queue\x9b31m\u202egnp.exe\u2028"
TELLS = f"""
from shoal_ops import output
output.say({HOSTILE!r})
output.remark({HOSTILE!r})
output.table(("name",), [({HOSTILE!r},)])
output.say_json({{"name": {HOSTILE!r}}})
output.say_exactly(output.body_text({HOSTILE.encode()!r}))
"""


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


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
async def test_what_stdout_cannot_show_is_escaped_and_stops_no_pull(real_redirector: str, encoding: str) -> None:
    """The message was not acked, and came first again each time."""
    queue, text = f"shown-{encoding}", "\U0001f600 \u00fc"
    async with client.connect(real_redirector) as broker:
        await broker.declare(queue)
        await broker.send(queue, text.encode())
        for command in (["peek", queue], ["peek", queue, "--json"], ["pull", queue], ["describe", queue]):
            code, out, error = await shoal(*command, at=real_redirector, PYTHONIOENCODING=f"{encoding}:strict")
            assert (code, error) == (0, "")
            if "--json" in command:
                assert json.loads(out)["body"] == text
            elif command[0] != "describe" and encoding == "ascii":
                assert "\\U0001f600 \\xfc" in out
        assert (await broker.describe(queue)).messages == 0
