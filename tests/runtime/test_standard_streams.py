"""A process whose starter closed its standard streams does its work, and ends as any other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WORK = """
from shoal_runtime.standard_streams import open_closed_ones
open_closed_ones()
import sys, uvloop, asyncio, socket
print("said"); sys.stderr.write("told"); assert sys.stdin.read() == ""
async def main():
    reading, writing = await asyncio.open_connection(*server.getsockname())
    assert writing.get_extra_info("socket").fileno() > 2
    writing.close()
server = socket.create_server(("127.0.0.1", 0))
uvloop.run(main())
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_the_null_device(closed: str, tmp_path: Path) -> None:
    """The loop's first file got the number of one, and the process was aborted when that was closed."""
    (tmp_path / "work.py").write_text(WORK)
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" work.py {closed}'], cwd=tmp_path, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("" if closed.startswith((">", "<&- >")) else "said\n")
