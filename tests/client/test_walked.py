"""A full inbox goes the way that docs/developers/walks.md tells, as far as the client goes it."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import FrameType

import shoal
from shoal.testing import FakeCluster

WAIT_S = 30
CLIENT = Path(shoal.__file__).parent
WALKS = Path(__file__).parents[2] / "docs" / "developers" / "walks.md"

Call = tuple[str, str]
"""File, from client/shoal on, and function."""


def steps() -> list[Call]:
    """The client's steps, but for those of the last row: there one delivery goes back, and another one is dropped."""
    section = WALKS.read_text(encoding="utf-8").partition("## A full inbox\n")[2].partition("\n## ")[0]
    rows = section.strip().splitlines()
    return re.findall(r"`client/shoal/([a-z_/]+\.py)::([a-z_]+)`", "\n".join(rows[:-1]))


async def test_a_full_inbox_goes_the_way_that_its_walk_tells() -> None:
    calls: list[Call] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{CLIENT}/"):
            calls.append((path.removeprefix(f"{CLIENT}/"), frame.f_code.co_name))

    def unmet() -> Call | None:
        rest = iter(calls)
        return next((step for step in walk if step not in rest), None)

    walk = steps()
    assert len(walk) > 15
    async with asyncio.timeout(WAIT_S), FakeCluster().connect() as broker:
        await broker.declare("q", shoal.QueueOptions(ack_timeout_ms=100))
        await broker.publish_many("@q", [b"%d" % number for number in range(4)])
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            async with broker.consume("q") as inbox:
                await (await inbox.get()).ack()
                while unmet() is not None and len(calls) < 50_000:  # noqa: ASYNC110 - the timer's doing
                    await asyncio.sleep(0.02)
        finally:
            sys.setprofile(before)
    assert unmet() is None
