"""When checkpoints begin and end, without a disk: a stop never meets one under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest

from shoal_contract.errors import ResourceExhausted, Unavailable
from shoal_slice_node.adapters import checkpoints as checkpoints_module
from shoal_slice_node.adapters.checkpoints import Checkpoints
from shoal_slice_node.adapters.limits import (
    CHECKPOINT_RETRY_MS,
    CHECKPOINT_RETRY_MS_MAX,
    DELTA_FAILING_STALL_FACTOR,
    DELTA_FREEING_FACTOR,
    DELTA_FROZEN_FACTOR,
    DELTA_ROWS_MAX,
    DELTA_STALL_FACTOR,
    DELTA_TROUBLE_FACTOR,
    IMPORT_STALL_FACTOR,
)
from shoal_slice_node.adapters.recovery import FREEZE_LIMITS
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.apply.interest import Interest
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import MEMORY_BYTES_MIN
from shoal_slice_node.core.memory import plan_memory
from shoal_slice_node.core.node.freezing import Freezing
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.storage.journal_files import Journal


class FakeStore:
    """A store whose checkpoints end when told."""

    def __init__(self) -> None:
        self.delta_rows = self.delta_bytes = self.checkpoint_lsn = self.checkpoints = 0
        self.frozen_rows = self.frozen_bytes = 0
        self.freezing = False
        self.delta_rows_max = DELTA_ROWS_MAX
        self.checkpointer_pid = 77
        self.written = asyncio.Event()
        self.state = State(MemoryTables(), Interest())

    def freeze(self, lsn: int) -> None:
        assert not self.freezing
        self.freezing = True
        self.frozen_lsn = lsn

    async def checkpoint(self) -> dict[str, Any]:
        await self.written.wait()
        self.freezing = False
        self.checkpoint_lsn = self.frozen_lsn
        self.checkpoints += 1
        return {"emptied": []}


class FullStore(FakeStore):
    """A store whose disk is full, until it has room: then the next checkpoint is written. `tries` are the
    times of the attempts."""

    def __init__(self, clock: Clock, room_at_ms: int) -> None:
        super().__init__()
        self.tries: list[int] = []
        self.frozen_bytes = 7_000_000
        self._clock = clock
        self._room_at_ms = room_at_ms

    @property
    def disk_free_bytes(self) -> int:
        return 1 << 30 if self._has_room else 0

    @property
    def _has_room(self) -> bool:
        return self._clock.now_ms >= self._room_at_ms

    async def melt(self) -> list[bytes] | None:
        return None

    async def checkpoint(self) -> dict[str, Any]:
        self.tries.append(self._clock.now_ms)
        if not self._has_room:
            raise ResourceExhausted("no disk space", subject="disk bytes")
        self.written.set()
        return await super().checkpoint()


class FakeJournal:
    """A journal that is told how much its next segment must leave free."""

    def __init__(self) -> None:
        self.left: list[int] = []

    @property
    def next_segment(self) -> FakeJournal:
        return self

    def __setattr__(self, name: str, value: object) -> None:
        if name == "leave_bytes":
            assert isinstance(value, int)
            self.left.append(value)
        else:
            super().__setattr__(name, value)


class Clock:
    """The time, which goes on when something sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0
        monkeypatch.setattr(checkpoints_module, "steady_ms", lambda: self.now_ms)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, for_s: float) -> None:
        self.now_ms += round(for_s * 1000)
        await self._turn()

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn.set_result, None)
        await turn


async def test_on_a_full_disk_tries_become_rare_and_the_next_one_comes_with_the_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    store = FullStore(clock, room_at_ms=200_000)
    store.delta_rows = DELTA_ROWS_MAX
    freezing = Freezing(store.state, store, FREEZE_LIMITS)
    released: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    released.set_result(None)
    journal = FakeJournal()
    checkpoints = Checkpoints(cast(Store, store), cast(Journal, journal), store.state, freezing, lambda _: released)
    running = asyncio.create_task(checkpoints.run())
    try:
        store.state.lsn = 1
        checkpoints.consider()
        await asyncio.wait_for(checkpoints.hold(), 30)
        assert journal.left[0] > 7_000_000 and journal.left[-1] == 0, "the next segment leaves it its room"
        pauses = [later - earlier for earlier, later in pairwise(store.tries)]
        assert pauses[:6] == [1_000, 2_000, 4_000, 8_000, 16_000, CHECKPOINT_RETRY_MS_MAX]
        assert max(pauses) == CHECKPOINT_RETRY_MS_MAX
        assert store.tries[-1] - 200_000 <= CHECKPOINT_RETRY_MS, "it does not wait for the end of a pause"
    finally:
        running.cancel()


class MeltingStore(FullStore):
    """A store without room, whose frozen delta melts at the first look."""

    async def melt(self) -> list[bytes] | None:
        self.freezing = False
        self.delta_rows = 0
        return [b"emptied"]


async def test_what_is_frozen_counts_where_changes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start freezes all that it finds in the journal. Each life took four times as much again, until no start could
    take it."""
    store = FullStore(Clock(monkeypatch), room_at_ms=1 << 40)
    freezing = Freezing(store.state, store, FREEZE_LIMITS)
    checkpoints = Checkpoints(
        cast(Store, store), cast(Journal, FakeJournal()), store.state, freezing, lambda _: asyncio.Future()
    )
    store.freezing, store.frozen_rows = True, DELTA_TROUBLE_FACTOR * DELTA_ROWS_MAX
    store.delta_rows = DELTA_ROWS_MAX
    assert checkpoints.refusal == "", "no checkpoint has failed"
    checkpoints.problem = "no disk space"
    waiting = (DELTA_TROUBLE_FACTOR + DELTA_FROZEN_FACTOR) * DELTA_ROWS_MAX
    assert checkpoints.refusal == f"checkpoints fail, and {waiting} changes wait for one: no disk space"
    store.delta_rows -= 1
    assert checkpoints.refusal == ""
    assert checkpoints.throttle() is None


async def test_while_checkpoints_fail_nothing_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drops were taken without a bound, until nothing was applied any more, and nothing answered."""
    store = FullStore(Clock(monkeypatch), room_at_ms=1 << 40)
    store.delta_rows, store.state.lsn = DELTA_ROWS_MAX, 1
    freezing = Freezing(store.state, store, FREEZE_LIMITS)
    checkpoints = Checkpoints(
        cast(Store, store), cast(Journal, FakeJournal()), store.state, freezing, lambda _: asyncio.Future()
    )
    checkpoints.consider()
    store.frozen_rows = DELTA_ROWS_MAX
    store.delta_rows = DELTA_STALL_FACTOR * DELTA_ROWS_MAX
    throttled = checkpoints.throttle()
    assert throttled is not None, "a checkpoint is under way, as far as known"
    with pytest.raises(Unavailable, match="no checkpoint can be written now: no disk space"):
        running = asyncio.create_task(checkpoints.run())
        try:
            await asyncio.wait_for(checkpoints.reach(1, lambda: None), 5)
        finally:
            running.cancel()
    with pytest.raises(Unavailable, match="no checkpoint can be written now: no disk space"):
        await asyncio.wait_for(checkpoints.reach(1, lambda: None), 1)  # Not only with the next attempt.
    await asyncio.wait_for(checkpoints.room_for_imports(), 1)  # The import is told that no changes are taken.
    assert throttled.done() and checkpoints.throttle() is None
    assert checkpoints.refusal and checkpoints.freeing_refusal
    store.delta_rows = DELTA_FREEING_FACTOR * DELTA_ROWS_MAX - 1
    assert checkpoints.refusal and not checkpoints.freeing_refusal
    store.delta_rows = DELTA_FAILING_STALL_FACTOR * DELTA_ROWS_MAX
    assert checkpoints.throttle() is not None


async def test_what_a_start_could_not_write_is_written_by_the_first_checkpoint() -> None:
    store = FakeStore()
    store.freezing, store.frozen_lsn = True, 7
    store.written.set()
    released: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    released.set_result(None)
    freezing = Freezing(store.state, store, FREEZE_LIMITS)
    checkpoints = Checkpoints(cast(Store, store), cast(Journal, None), store.state, freezing, lambda _: released)
    running = asyncio.create_task(checkpoints.run())
    try:
        await asyncio.wait_for(checkpoints.hold(), 5)
        assert store.checkpoint_lsn == 7
    finally:
        running.cancel()


async def test_imports_and_stops_that_wait_for_a_checkpoint_go_on_when_its_delta_melts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They went on after the next checkpoint, which may be long after."""
    store = MeltingStore(Clock(monkeypatch), room_at_ms=1 << 40)
    store.delta_rows, store.state.lsn = DELTA_ROWS_MAX, 1
    freezing = Freezing(store.state, store, FREEZE_LIMITS)
    journal = cast(Journal, FakeJournal())
    checkpoints = Checkpoints(cast(Store, store), journal, store.state, freezing, lambda _: asyncio.Future())
    told: list[list[bytes]] = []
    checkpoints.on_emptied = told.append
    checkpoints.consider()
    store.delta_rows = IMPORT_STALL_FACTOR * DELTA_ROWS_MAX
    waiting = asyncio.create_task(checkpoints.room_for_imports())
    holding = asyncio.create_task(checkpoints.hold())
    running = asyncio.create_task(checkpoints.run())
    try:
        await asyncio.wait_for(asyncio.gather(waiting, holding), 5)
        assert told[0] == [b"emptied"], "its leader drops what nothing is bound to"
    finally:
        running.cancel()


async def test_a_delta_frozen_while_the_journal_is_released_is_waited_for() -> None:
    store = FakeStore()
    store.delta_rows = DELTA_ROWS_MAX
    releases: list[asyncio.Future[object]] = []
    released: asyncio.Queue[None] = asyncio.Queue()

    def in_journal_thread(work: Callable[[], object]) -> asyncio.Future[object]:
        releases.append(asyncio.get_running_loop().create_future())
        released.put_nowait(None)
        return releases[-1]

    freezing = Freezing(store.state, store, FREEZE_LIMITS)
    checkpoints = Checkpoints(cast(Store, store), cast(Journal, None), store.state, freezing, in_journal_thread)

    def applied(lsn: int) -> None:
        store.state.lsn = lsn
        checkpoints.consider()

    running = asyncio.create_task(checkpoints.run())
    try:
        applied(1)
        store.written.set()
        await asyncio.wait_for(released.get(), 5)
        store.written.clear()
        applied(2)
        assert store.freezing
        releases[0].set_result(None)
        holding = asyncio.create_task(checkpoints.hold())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not holding.done(), "the second is still to be written"
        store.written.set()
        await asyncio.wait_for(released.get(), 5)
        releases[1].set_result(None)
        await asyncio.wait_for(holding, 5)
        applied(3)
        assert not store.freezing, "none begins after that"
        assert store.checkpoints == 2
    finally:
        running.cancel()


async def test_a_process_out_of_files_keeps_its_journal_and_goes_on() -> None:
    store = FakeStore()
    store.delta_rows = DELTA_ROWS_MAX
    store.written.set()

    def in_journal_thread(work: Callable[[], object]) -> asyncio.Future[object]:
        refused: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        refused.set_exception(ResourceExhausted("no file can be opened", subject="open files"))
        return refused

    freezing = Freezing(store.state, store, FREEZE_LIMITS)
    checkpoints = Checkpoints(cast(Store, store), cast(Journal, None), store.state, freezing, in_journal_thread)
    running = asyncio.create_task(checkpoints.run())
    try:
        for lsn in (1, 2):
            store.state.lsn = lsn
            reached = asyncio.create_task(checkpoints.reach(lsn, checkpoints.consider))
            await asyncio.wait([reached, running], timeout=5, return_when=asyncio.FIRST_COMPLETED)
            assert reached.done() and not running.done()
    finally:
        running.cancel()


async def test_imports_wait_for_the_checkpointer_before_other_changes_do() -> None:
    store = FakeStore()
    freezing = Freezing(store.state, store, FREEZE_LIMITS)
    released: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    released.set_result(None)
    checkpoints = Checkpoints(cast(Store, store), cast(Journal, None), store.state, freezing, lambda _: released)
    running = asyncio.create_task(checkpoints.run())
    try:
        store.state.lsn, store.delta_rows = 1, DELTA_ROWS_MAX
        checkpoints.consider()
        store.delta_rows = IMPORT_STALL_FACTOR * DELTA_ROWS_MAX - 1
        await asyncio.wait_for(checkpoints.room_for_imports(), 5)
        store.delta_rows += 1
        waiting = asyncio.create_task(checkpoints.room_for_imports())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done() and checkpoints.throttle() is None
        store.written.set()
        await asyncio.wait_for(waiting, 5)
    finally:
        running.cancel()


@pytest.mark.parametrize("budget_mib", [MEMORY_BYTES_MIN >> 20, 334, 512, 4096])
async def test_changes_do_not_wait_for_a_checkpoint_until_their_share_of_memory_is_taken(budget_mib: int) -> None:
    """With less than 334 MiB they waited during every checkpoint: the frozen changes alone exceeded the share."""
    share = plan_memory(budget_mib).delta_bytes
    store = FakeStore()
    freezing = Freezing(store.state, store, FREEZE_LIMITS)
    checkpoints = Checkpoints(
        cast(Store, store), cast(Journal, None), store.state, freezing, lambda _: asyncio.Future(), None, share
    )
    store.delta_bytes = min(FREEZE_LIMITS.delta_bytes, share // 2)
    assert freezing.is_large()
    room = min(share - store.delta_bytes, DELTA_STALL_FACTOR * FREEZE_LIMITS.delta_bytes)
    store.delta_bytes, store.freezing = 0, True
    assert checkpoints.throttle() is None
    store.delta_bytes = room * 9 // 10
    assert checkpoints.throttle() is None
    store.delta_bytes = room
    assert checkpoints.throttle() is not None


async def test_a_checkpointer_that_hangs_is_told_and_nothing_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the bound all waited for it, reads too, and nothing said why."""
    monkeypatch.setattr(checkpoints_module, "CHECKPOINT_SLOW_S", 0.05)
    store = FakeStore()
    store.delta_rows, store.state.lsn = DELTA_ROWS_MAX, 1
    freezing = Freezing(store.state, cast(Store, store), FREEZE_LIMITS)
    released: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    released.set_result(None)
    checkpoints = Checkpoints(
        cast(Store, store), cast(Journal, FakeJournal()), store.state, freezing, lambda _: released
    )
    checkpoints.consider()
    store.delta_rows = DELTA_STALL_FACTOR * DELTA_ROWS_MAX
    throttled = checkpoints.throttle()
    assert throttled is not None and not checkpoints.trouble
    running = asyncio.create_task(checkpoints.run())
    try:
        await asyncio.wait_for(throttled, 30)
        assert "the checkpointer, process 77, has written for more than 0.05 s" in checkpoints.trouble
        assert checkpoints.refusal and "kill -9 77: another one is started" in caplog.text
        store.written.set()
        await asyncio.wait_for(checkpoints.hold(), 30)
        assert not checkpoints.trouble and not checkpoints.refusal
    finally:
        running.cancel()
