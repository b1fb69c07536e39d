"""docs/library.md: its examples run as they stand and print what they say, on a real cluster; its bounds are in use."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import shoal
from shoal import limits as client
from shoal.testing import fixtures
from shoal_contract import limits as contract
from tests.client.real_cluster import RealCluster
from tests.folders import NewFolder

GUIDE = (Path(__file__).parents[2] / "docs" / "library.md").read_text(encoding="utf-8")
BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
EXAMPLES = [block for block in BLOCKS if not FILE.match(block)]
FILES = {found[1]: block for block in BLOCKS if (found := FILE.match(block))}
WAIT_S = 60


@pytest.fixture(scope="module")
def real_redirector(module_folder: NewFolder) -> Iterator[str]:
    """The redirector of a cluster of this file's own: the guide tells offsets as a fresh cluster gives them."""
    with RealCluster(module_folder("guide") / "data") as redirector:
        yield redirector


def promised(example: str) -> list[str]:
    """What the comments behind `print(...)` say that it prints."""
    return re.findall(r"^ *print\(.*\)  # (.*)$", example, re.MULTILINE)


def with_await(example: str) -> CodeType:
    """Compiles lines that await outside of a function. The example has no part in this file's `from __future__`."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(example, "docs/library.md", "exec", flags=flags, dont_inherit=True)
    return code


async def test_the_first_example_is_a_program_that_runs(real_redirector: str) -> None:
    program = EXAMPLES[0].replace("localhost:7400", real_redirector)
    assert program != EXAMPLES[0]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(WAIT_S):
        out, _ = await process.communicate()
    assert (process.returncode, out.decode().splitlines()) == (0, promised(EXAMPLES[0])), out.decode()


async def test_all_other_examples_print_what_they_say(real_redirector: str) -> None:
    assert len(EXAMPLES) > 8
    async with shoal.connect(real_redirector) as broker, asyncio.timeout(WAIT_S):
        printed: list[str] = []
        names: dict[str, Any] = {"shoal": shoal, "broker": broker}
        names["print"] = lambda *values: printed.append(" ".join(map(str, values)))
        try:
            for example in EXAMPLES[1:]:
                assert promised(example) or "print" not in example, "each print says what it prints"
                printed.clear()
                running = eval(with_await(example.replace("localhost:7400", real_redirector)), names)
                if inspect.isawaitable(running):
                    await running
                assert printed == promised(example), example
        finally:
            for queue in ("anna", "ben"):
                if (await broker.describe(queue)).exists:
                    await broker.drop(queue)


def test_the_example_of_an_applications_tests_passes(tmp_path: Path) -> None:
    assert sorted(FILES) == ["conftest.py", "test_rooms.py"]
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)], capture_output=True, text=True, timeout=WAIT_S
    )
    tests = FILES["test_rooms.py"].count("async def test_")
    assert done.returncode == 0 and f"{tests} passed" in done.stdout, done.stdout + done.stderr


def section(title: str) -> str:
    return GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_fixture_is_in_the_guide() -> None:
    found = {name for name in vars(fixtures) if name.startswith("shoal_")}
    assert len(found) >= 4
    assert set(re.findall(r"^\| `(shoal_\w+)` \|", section("Test your application"), re.MULTILINE)) == found


def test_every_state_is_in_the_guide() -> None:
    assert {state.name for state in shoal.State} <= set(re.findall(r"\b[A-Z]+\b", section("Know how things are")))


ROWS = [
    ("name of a queue", f"{contract.NAME_BYTES_MAX} bytes"),
    ("body of a message", f"{contract.BODY_BYTES_MAX >> 20} MiB"),
    ("messages of `publish_many`", f"{contract.CHUNK_MESSAGES_MAX:,} and {contract.CHUNK_BYTES_MAX >> 20} MiB"),
    ("names in a call", f"{contract.NAMES_PER_CALL_MAX:,}"),
    ("keys of one slice", f"{client.GATHER_OPERATIONS_MAX:,}"),
    ("queues of an inbox", f"{client.CONSUME_QUEUES_MAX:,}"),
    ("`window_messages`", f"{contract.WINDOW_MESSAGES_MAX:,}; {contract.WINDOW_BYTES_MAX >> 20} MiB"),
    ("`lease_ms` of a pull", f"{contract.PULL_LEASE_MS_MAX:,} (an hour)"),
    ("`timeout` of `get`", f"{contract.DEADLINE_S_MAX:,} (a week)"),
    ("`deadline_s`", f"{contract.DEADLINE_S_MAX:,} (a week)"),
    ("requests under way to a slice", f"{client.UNANSWERED_BYTES_MAX >> 20} MiB; above it `publish` waits"),
]


@pytest.mark.parametrize(("row", "said"), ROWS, ids=[row for row, _ in ROWS])
def test_the_bounds_are_those_in_use(row: str, said: str) -> None:
    assert re.search(rf"^\| {re.escape(row)}.* \| {re.escape(said)} \|$", GUIDE, re.MULTILINE)


def test_every_error_is_in_the_table() -> None:
    table = GUIDE.partition("## Errors")[2].partition("\n```")[0]
    errors = {name for name in shoal.__all__ if isinstance(getattr(shoal, name), type)}
    errors = {name for name in errors if issubclass(getattr(shoal, name), shoal.ShoalError)}
    assert {name for name in errors if not re.search(rf"\b{name}\b", table)} == set()
