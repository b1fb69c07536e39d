"""The programs in examples/ do what they say, on a real cluster; none is long, and the list has them all."""

from __future__ import annotations

import pytest

from shoal_local.cluster import LocalCluster

from .conftest import EXAMPLES, load

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
    "registration_jobs": [
        "'not an address' of registrations was tried 3 times",
        "registered: anna@example.org, ben@example.org, cleo@example.org",
    ],
    "presence": [
        "members: here-anna, here-ben",
        "here-anna is there",
        "here-cleo joined",
        "here-anna is gone",
        "here-cleo left",
        "board: anna went offline",
    ],
    "friendship": [
        "anna asks ben",
        "cleo asks ben",
        "anna asks bert: there is no such person",
        "anna hears on friends-anna-ben: ben says yes",
        "cleo hears on friends-ben-cleo: ben says yes",
    ],
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("program", PROGRAMS)
async def test_it_says_what_it_should(program: str, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    await load(EXAMPLES / f"{program}.py").main(cluster.redirector)
    assert capsys.readouterr().out.splitlines() == SAID[program]


@pytest.mark.parametrize("program", PROGRAMS)
async def test_it_is_short_and_listed(program: str) -> None:
    assert len((EXAMPLES / f"{program}.py").read_text(encoding="utf-8").splitlines()) <= LINES_MAX
    assert f"({program}.py)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
