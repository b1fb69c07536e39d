"""Processes are counted once, by role, with their children."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shoal_loadtest.residents.usage import Usage

BUSY = "import sys; held = bytes(50_000_000).replace(b'\\0', b'x'); print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Holds 50 MB until its stdin ends."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process


def test_a_child_counts_with_its_parent(child: subprocess.Popen[bytes]) -> None:
    usage = Usage()
    usage.roots = [("tests", os.getpid())]
    both = usage.look()["tests MB"]
    assert child.stdin is not None
    child.stdin.close()
    child.wait()

    assert both - usage.look()["tests MB"] > 45


def test_a_child_that_is_a_root_itself_is_counted_there_only(child: subprocess.Popen[bytes]) -> None:
    usage = Usage()
    usage.roots = [("child", child.pid), ("tests", os.getpid())]
    found = usage.look()
    alone = Usage()
    alone.roots = [("tests", os.getpid())]

    assert found["child MB"] > 45
    assert alone.look()["tests MB"] - found["tests MB"] > 45


def test_a_process_that_is_gone_counts_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    usage = Usage()
    usage.roots = [("gone", process.pid)]

    assert usage.look() == {}
