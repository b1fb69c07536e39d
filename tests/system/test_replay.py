"""Real events through a real cluster that loses a node: every queue gets its messages, and a lie would be found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal_local.cluster import LocalCluster
from shoal_ops.replay.expectation import Due, Expectation
from shoal_ops.replay.run import Replay, Source
from shoal_runtime.tasks import Tasks

from .replay_sources import CHANNEL_EVENTS, CHURN_EVENTS, shortened


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path / "cluster", slices=2) as cluster:
        yield cluster


async def test_a_node_killed_in_the_middle_changes_no_queues_content(cluster: LocalCluster, tmp_path: Path) -> None:
    replay = Replay(cluster.redirector, shortened(tmp_path))
    middle = asyncio.Event()
    replay.tally.on_event = lambda done: middle.set() if 2 * done > CHANNEL_EVENTS + CHURN_EVENTS else None

    async def lose_nodes() -> None:
        await middle.wait()
        for name in cluster.slices:
            await cluster.kill(name)
            await cluster.restart(name)

    async with Tasks("test") as tasks, asyncio.timeout(120):
        losing = tasks.start("lose nodes", lose_nodes())
        report = await replay.run()
        await losing
    assert report.first_mismatches == ()
    assert report.mismatches == 0
    assert (report.events, report.deliveries) == (CHANNEL_EVENTS + CHURN_EVENTS, replay.expectation.deliveries)
    assert report.deliveries > 10_000


class Corrupted(Expectation):
    """Expects another body for one message, and that one queue joined later than it did."""

    def __init__(self) -> None:
        super().__init__()
        self._said = 0
        self._late: bytes | None = None

    def join(self, group: bytes, queue: bytes) -> bool:
        if self._late is None:
            self._late = queue
            return False
        return super().join(group, queue)

    def say(self, group: bytes, body: bytes) -> Due:
        self._said += 1
        return super().say(group, body if self._said != 3 else body + b"!")


async def test_a_corrupted_expectation_is_found(cluster: LocalCluster, tmp_path: Path) -> None:
    story = tmp_path / "story.tsv"
    lines = ["join\tanna\t", "join\tben\t", *(f"msg\tben\ttext {number}" for number in range(5)), "quit\tanna\t"]
    story.write_text("".join(f"2026-01-01\t00:00\tnet\troom\t{line}\n" for line in lines), encoding="utf-8")
    async with asyncio.timeout(60):
        honest = await Replay(cluster.redirector, [Source(story)]).run()
        corrupted = Replay(cluster.redirector, [Source(story)], expectation=Corrupted(), prefix="lies")
        report = await corrupted.run()
    assert (honest.mismatches, honest.deliveries) == (0, 10)
    problems = {(found.queue, found.problem, found.messages) for found in report.first_mismatches}
    assert problems == {
        ("lies.0.anna", "not for this queue", 5),
        ("", "another body than was published", 1),
        ("", "receipt says 2 queues, not 1", 1),
    }
    assert report.mismatches == 11
