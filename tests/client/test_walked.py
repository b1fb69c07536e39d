"""Walks of docs/developers/walks.md meet the client's functions that they list, in order."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import shoal
from shoal.testing import FakeCluster
from shoal_contract.chunk import encode_chunk
from shoal_contract.options import DURABLE
from shoal_contract.wire import slice_pb2 as wire

WAIT_S = 30
CLIENT = Path(shoal.__file__).parent
WALKS = Path(__file__).parents[2] / "docs" / "developers" / "walks.md"

Call = tuple[str, str]
"""File, from client/shoal on, and function."""


def steps(title: str) -> list[Call]:
    """The client's steps of one walk; of a full inbox without those of the last row: there one delivery goes back, and
    another one is dropped."""
    section = WALKS.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = section.strip().splitlines()
    return re.findall(r"`client/shoal/([a-z_/]+\.py)::([a-z_]+)`", "\n".join(rows[: -1 if "full" in title else None]))


class Calls:
    """The calls of the client's functions while it is entered."""

    def __init__(self) -> None:
        self.made: list[Call] = []

    def __enter__(self) -> Calls:
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{CLIENT}/"):
            self.made.append((path.removeprefix(f"{CLIENT}/"), frame.f_code.co_name))

    def unmet(self, walk: list[Call]) -> Call | None:
        """The first step that no call meets after the calls that met the steps before it."""
        rest = iter(self.made)
        return next((step for step in walk if step not in rest), None)


async def test_a_full_inbox_goes_the_way_that_its_walk_tells() -> None:
    walk = steps("A full inbox")
    assert len(walk) > 15
    async with asyncio.timeout(WAIT_S), FakeCluster().connect() as broker:
        await broker.declare("q", shoal.QueueOptions(ack_timeout_ms=100))
        await broker.publish_many("@q", [b"%d" % number for number in range(4)])
        with Calls() as calls:
            async with broker.consume("q") as inbox:
                await (await inbox.get()).ack()
                while calls.unmet(walk) is not None and len(calls.made) < 50_000:  # noqa: ASYNC110 - the timer's doing
                    await asyncio.sleep(0.02)
    assert calls.unmet(walk) is None


def third_life() -> wire.Change:
    """A queue, its binding, and a message that it gets before anything else is done on the slice."""
    return wire.Change(
        steps=[
            wire.Step(declares=wire.Declares(queues=[b"q"], options=DURABLE.to_wire())),
            wire.Step(binds=wire.Binds(queues=[b"q"], keys=[b"k"])),
            wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[encode_chunk([b"of the third life"])])),
        ]
    )


async def test_a_queues_next_life_goes_the_way_that_its_walk_tells() -> None:
    walk = steps("A queue's next life")
    assert len(walk) > 15
    cluster = FakeCluster(["s01"])
    (slice_,) = cluster.slices.values()
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await broker.declare("q")
        await broker.bind("q", "k")
        async with broker.consume("q") as inbox:
            await broker.publish("k", b"of the first life")
            await inbox.get()
            with Calls() as calls:
                await broker.drop("q")
                with pytest.raises(shoal.NoSuchQueue):
                    await inbox.get()
                await broker.declare("q")
                await broker.bind("q", "k")
                await broker.publish("k", b"of the second life")
                assert (await inbox.get()).body == b"of the second life"
                lost = calls.unmet(walk)
                slice_.late_attached = True
                slice_.cut()
                slice_.state.queues.drop(b"q", 0)
                slice_.state.take_dropped()  # The stream is lost: no reset tells of it.
                slice_.state.change(bytes(16), 1, 0, third_life().SerializeToString())
                assert (await inbox.get()).body == b"of the third life"
    assert lost == ("inbox_slice.py", "first_frames") and calls.unmet(walk) is None
