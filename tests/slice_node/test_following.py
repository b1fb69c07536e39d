"""A follower that catches up with a long journal: in pieces and in steps, and checkpoints go on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal_contract.journal_record import encode_record
from shoal_slice_node.adapters import following, recovery
from shoal_slice_node.adapters.following import catch_up
from shoal_slice_node.adapters.node_data import DataOptions, NodeData
from shoal_slice_node.adapters.recovery import recover

from .core_driver import CoreDriver, bind, declare, publish
from .determinism_steps import contents

WAIT_S = 30


@pytest.fixture
async def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NodeData]:
    """Empty tables, of which each change is due for a checkpoint."""
    monkeypatch.setattr(recovery, "FREEZE_LIMITS", recovery.FREEZE_LIMITS._replace(tail_operations=1))
    failed: list[BaseException] = []
    found = NodeData(await recover(tmp_path), DataOptions(1 << 30), lambda _, error: failed.append(error))
    found.start()
    yield found
    await found.close(checkpoint=True)
    assert not failed


async def journaled(data: NodeData, core: CoreDriver) -> None:
    """The journal has what a leader did, and the tables have not."""
    records = core.records
    encoded = b"".join(encode_record(one.kind, one.lsn, one.epoch, one.time_ms, one.payload) for one in records)
    await data.in_journal_thread(lambda: data.journal.append(encoded, records[0].lsn, records[-1].lsn))


def slowly(patched: pytest.MonkeyPatch) -> None:
    """A slice is over after each step, however fast the machine is."""
    patched.setattr(following, "LOOP_SLICE_MS", 0)


async def test_checkpoints_go_on_while_a_follower_catches_up(data: NodeData, monkeypatch: pytest.MonkeyPatch) -> None:
    """None began before it had applied all: the delta grew with what it lagged behind."""
    slowly(monkeypatch)
    monkeypatch.setattr(following, "FOLLOWED_RECORDS", 3)
    core = CoreDriver()
    for number in range(300):
        core.change(declare(f"q{number}"), bind(f"q{number}", "k"), publish("k", b"x"))
    await journaled(data, core)
    throttle = data.checkpoints.throttle

    def waits_once() -> asyncio.Future[None] | None:
        """On a busy machine all is applied before the checkpointer's process has done its first work."""
        if data.state.lsn < len(core.records) // 2 or data.store.checkpoint_lsn:
            return throttle()
        return data.checkpoints.next_end()

    monkeypatch.setattr(data.checkpoints, "throttle", waits_once)
    at: list[tuple[int, int]] = []

    async def look() -> None:
        while True:
            at.append((data.store.checkpoint_lsn, data.state.lsn))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    async with asyncio.timeout(WAIT_S):
        assert await catch_up(data) == len(core.records)
    looking.cancel()
    assert [found for found in at if 0 < found[0] < found[1] < len(core.records)], "no checkpoint ended on the way"
    assert contents(data.store.tables) == contents(core.tables)
    assert await catch_up(data) == 0


async def test_what_a_follower_reads_at_a_time_is_bounded(data: NodeData, monkeypatch: pytest.MonkeyPatch) -> None:
    core = CoreDriver()
    for _ in range(20):
        core.change(declare("q"), bind("q", "k"), publish("k", bytes(300)))
    await journaled(data, core)
    for name, most, least in (("FOLLOWED_RECORDS", 3, 3), ("FOLLOWED_BYTES", 1000, 1)):
        with monkeypatch.context() as patched:
            patched.setattr(following, name, most)
            pieces = list(following._pieces(data, 1))
        assert [record for piece in pieces for record in piece] == core.records
        assert all(least <= len(piece) <= 4 for piece in pieces[:-1])


async def test_a_large_record_is_followed_in_steps_and_whole_though_it_is_cancelled(
    data: NodeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the loop for as long as the record took."""
    slowly(monkeypatch)
    core = CoreDriver()
    core.change(declare("q"), bind("q", *(f"k{number}" for number in range(900))))
    core.change(declare("later"))
    await journaled(data, core)
    catching_up = asyncio.create_task(catch_up(data))
    async with asyncio.timeout(WAIT_S):
        while not 0 < len(list(data.store.tables.key.scan())) < 900:
            assert not catching_up.done(), "it was applied at one go"
            await asyncio.sleep(0)
    catching_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await catching_up
    assert len(list(data.store.tables.key.scan())) == 900 and data.state.lsn == core.records[-2].lsn
    async with asyncio.timeout(WAIT_S):
        assert await catch_up(data) == 1
    assert contents(data.store.tables) == contents(core.tables)
