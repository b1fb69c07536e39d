"""How acks that gathered reach the journal: in how many records, how soon, and what is told once nothing is written."""

from __future__ import annotations

import asyncio

import pytest

from shoal_contract.errors import Corrupt, ShoalError, Unavailable
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.acks import load_binding
from shoal_slice_node.core.limits import ACK_COST_PER_RECORD, DONE_RANGES_COPIED_PER_COST
from shoal_slice_node.core.node import ack_flush
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.key_row import ID

from .core_driver import CoreDriver, bind, declare, every_second, publish, unbind, with_done
from .looped_node import looped

STREAMS = 150
RANGES = 600
COST_EACH = 2 + (RANGES - 1) // DONE_RANGES_COPIED_PER_COST
"""What taking one ack of such a stream costs: the look, the ack, and the done ranges that are copied."""


def with_acks() -> CoreDriver:
    """A consumer that has done every second message of many keys acks one more of each."""
    core = CoreDriver()
    keys = [f"k{number}" for number in range(STREAMS)]
    core.change(declare("q"), bind("q", *keys))
    for key in keys:
        core.change(publish(key, *[b""] * (2 * RANGES + 2)))
    with_done(core, "q", keys, every_second(RANGES))
    session = core.session()
    core.attach(session, "q", messages=STREAMS * 2 * RANGES)
    core.take(session)
    for key in keys:
        core.ack(session, key, 1, 2)
    return core


@pytest.mark.parametrize("under_way_max", [1, 2, 32])
async def test_acks_with_many_done_ranges_do_not_wait_for_a_tick_each(
    monkeypatch: pytest.MonkeyPatch, under_way_max: int
) -> None:
    """A record took as many of them as it was expected to cost acks, and the next one waited for the next tick."""
    monkeypatch.setattr(ack_flush, "ACK_RECORDS_PER_TURN", under_way_max)
    async with looped(with_acks()) as (found, _):
        before = found.commit.operations
        flush = found.acks
        async with asyncio.timeout(5):
            assert await found.settled_acks() is None, "nothing but the commit loop went on"
        records = found.commit.applied_lsn - found.disk.appended[0][0] + 1
        each = -(-ACK_COST_PER_RECORD // COST_EACH)
        assert records == -(-STREAMS // each), "each took all that it may"
        assert found.commit.operations - before == STREAMS * COST_EACH, (
            "what it takes to apply them bounds batches and slices"
        )
        assert not found.core.dispatcher.acks.waiting and not flush.under_way
        found.core.check()


async def test_no_more_acks_are_flushed_once_the_commit_loop_has_ended() -> None:
    """Maintenance went on at once for ever, and stopped everything else."""
    async with looped() as (found, task):
        core = found.core
        await found.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b"))
        session = core.session()
        core.attach(session, "q")
        core.take(session)
        core.ack(session, "k", 1, 2)
        found.disk.failure = Corrupt("fdatasync failed", subject="journal")
        flush = found.acks
        assert isinstance(await found.change(declare("r")), Unavailable)
        with pytest.raises(Corrupt):
            await task
        told: list[ShoalError | None] = []
        flush.then(told.append)
        assert [flush.flush() for _ in range(3)] == [False] * 3
        assert isinstance(told.pop(), Unavailable) and not told
        assert isinstance(await asyncio.wait_for(found.settled_acks(), 5), Unavailable)


def test_few_acks_of_many_done_ranges_decode_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """One consumer's acks of 400 bindings with 4,000 of them each made everybody's acks wait 0.2 s, and more."""
    core = with_acks()
    monkeypatch.setattr(Ranges, "of_sorted", lambda _: pytest.fail("all ranges are decoded"))
    core.flush()
    monkeypatch.undo()
    assert [cursor_of(core, b"q", b"k%d" % number) for number in range(STREAMS)] == [3] * STREAMS
    core.check()


@pytest.mark.parametrize("acked_at_once", [False, True])
async def test_acks_of_what_a_bind_brought_again_reach_the_tables(acked_at_once: bool) -> None:
    """Where the stream still took the old cursor for journaled, answered acks below it were left out for good: the key
    was never trimmed, and all came again after a restart."""
    core = CoreDriver()
    session = core.session()
    core.change(declare("q", "keeper"), bind("q", "k"), bind("keeper", "k"), publish("k", *[b""] * 6))
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "k", 1, 5)
    core.flush()
    core.change(unbind("q", "k"), bind("q", "k", start=wire.START_EARLIEST))
    assert [offset for _, offset, *_ in core.take(session)] == [1, 2, 3, 4]
    if not acked_at_once:
        core.ack(session, "k", 1, 4)
        core.flush()
        assert cursor_of(core, b"q", b"k") == 4
    core.ack(session, "k", 1, 7)
    core.flush()
    assert cursor_of(core, b"q", b"k") == 7
    core.check()


def cursor_of(core: CoreDriver, queue: bytes, key: bytes) -> int:
    """The cursor of a binding in the tables."""
    row = core.tables.key.get(core.state.full_name(key))
    assert row is not None
    found = core.state.load_queue(queue)
    assert found is not None
    detail, _ = load_binding(core.state, found, row[ID])
    assert detail is not None
    return detail.cursor
