"""Starts whose checkpoints fail: how much of a journal they take all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.journal_record import Record
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.limits import DELTA_START_FACTOR
from shoal_slice_node.adapters.recovery import recover
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.limits import APPLIED_PER_STEP
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.turns import Work, finish

from .brokers import connected, running
from .core_driver import declare
from .raw_session import RawSession

ROWS_MAX = 4
"""Rows at which the delta is frozen; a change that declares a queue leaves two, at most three."""


async def journal(folder: Path, changes: list[int]) -> None:
    """Leaves a journal without a checkpoint. `changes`: how many queues each of its changes declares."""
    async with running(folder) as broker, connected(broker, folder) as channel:
        session = await RawSession.open(SliceServiceStub(channel))
        for number, queues in enumerate(changes):
            await session.change(declare(*(f"q{number}-{queue}" for queue in range(queues))))


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that no checkpoint has and that are not frozen, at each checkpoint that was tried and failed."""
    rows: list[int] = []

    async def fails(store: Store) -> None:
        rows.append(store.delta_rows)
        raise ResourceExhausted("no disk space", subject="disk bytes")

    monkeypatch.setattr(Store, "checkpoint", fails)
    return rows


async def test_a_start_whose_checkpoint_fails_goes_on(tmp_path: Path, tried: list[int]) -> None:
    await journal(tmp_path, [1] * 20)
    recovered = await recover(tmp_path, delta_rows_max=ROWS_MAX)
    assert recovered.store.freezing and len(tried) == 2
    assert recovered.replica.state.tables.queue_by_name.entries() == 20
    await recovered.close()


@pytest.mark.parametrize("how", ["changes", "records of one step", "one large record"])
async def test_a_start_whose_checkpoint_fails_ends_before_its_memory_is_full(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: list[int]
) -> None:
    """A running node refuses changes long before; but a journal may be longer, as one that is replayed alone. Acks and
    trims are applied in one step each, changes in several."""
    await journal(tmp_path, [1] * 20 + [400] if how == "one large record" else [1] * 200)
    steps = Replica.in_steps

    def in_one_step(replica: Replica, record: Record) -> Work[Effects]:
        yield from ()
        return finish(steps(replica, record))

    if how == "records of one step":
        monkeypatch.setattr(Replica, "in_steps", in_one_step)
    with pytest.raises(ResourceExhausted, match="no disk space"):
        await recover(tmp_path, delta_rows_max=ROWS_MAX)
    assert len(tried) == 3, "the first one is tried twice, and goes on"
    assert 0 <= tried[-1] - DELTA_START_FACTOR * ROWS_MAX <= 3 * APPLIED_PER_STEP
