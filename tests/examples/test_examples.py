"""The programs in examples/ do what they say, on a real cluster; none is long, and the list has them all."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from shoal_local.cluster import LocalCluster

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("*.py"))
LINES_MAX = 80
SAID = {
    "instant_messages": [
        "anna -> ben: are you there? (waits)",
        "anna -> ben: call me (waits)",
        "ben has 2 unread messages",
        "ben reads from anna: are you there?",
        "ben reads from anna: call me",
        "ben -> anna: here I am (waits)",
        "anna reads from ben: here I am",
        "key @im-nobody has no queue bound to it, and the publish is mandatory",
    ],
    "group_notices": [
        "a notice for 2000 members; 500 of them are there",
        "500 were reached at once",
        "resident-500 has 1 unread",
        "resident-500 reads: the lights go out at ten",
    ],
    "votes": ["green: 1800", "red: 600", "blue: 600"],
    "friendship": [
        "anna asks ben",
        "cleo asks ben",
        "anna asks bert: there is nobody of this name",
        "anna hears on friends-anna-ben: ben says yes",
        "cleo hears on friends-ben-cleo: ben says yes",
    ],
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path_factory.mktemp("examples"), slices=2) as cluster:
        yield cluster


def main_of(program: str) -> Callable[[str], Awaitable[None]]:
    spec = importlib.util.spec_from_file_location(f"example_{program}", EXAMPLES / f"{program}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    main: Callable[[str], Awaitable[None]] = module.main
    return main


@pytest.mark.parametrize("program", PROGRAMS)
async def test_it_says_what_it_should(program: str, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    await main_of(program)(cluster.redirector)
    assert capsys.readouterr().out.splitlines() == SAID[program]


@pytest.mark.parametrize("program", PROGRAMS)
async def test_it_is_short_and_listed(program: str) -> None:
    assert len((EXAMPLES / f"{program}.py").read_text(encoding="utf-8").splitlines()) <= LINES_MAX
    assert f"({program}.py)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
