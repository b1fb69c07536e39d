"""Group commit on a disk that is full, or fails: what is refused, what goes on, what stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest

from shoal_contract.errors import Corrupt, Fenced, ResourceExhausted, ShoalError, Unavailable
from shoal_slice_node.adapters import commit_loop
from shoal_slice_node.adapters.limits import PENDING_BYTES_DEFAULT, SOURCE_PENDING_BYTES_MIN
from shoal_slice_node.adapters.steps import StepWatch
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import Acked, Kind, encode_acks
from shoal_slice_node.core.node import ack_flush
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.read.reading import describe_queue

from .core_driver import CoreDriver, bind, declare, publish
from .looped_node import Looped, change_of, full, looped


async def test_a_full_disk_refuses_the_batch_and_the_next_one_has_the_same_lsn() -> None:
    async with looped() as (node, _):
        lsn = node.commit.applied_lsn
        node.disk.failure = full()
        changed, read = await asyncio.gather(node.change(declare("q")), node.submit(0, None))
        assert isinstance(changed, ResourceExhausted)
        assert isinstance(read, Effects), "what needs no disk goes on"
        assert node.core.state.load_queue(b"q") is None
        assert isinstance(await node.change(declare("q")), Effects)
        assert node.disk.appended == [(lsn + 1, lsn + 1)] and node.commit.applied_lsn == lsn + 1


async def test_a_failing_disk_stops_the_loop_and_nothing_more_is_acknowledged() -> None:
    async with looped() as (node, task):
        node.disk.failure = Corrupt("fdatasync failed", subject="journal")
        told = await node.change(declare("q"))
        assert isinstance(told, Unavailable) and "the outcome is unknown: fdatasync failed" in told.message
        with pytest.raises(Corrupt):
            await task
        assert isinstance(await node.change(declare("q")), Unavailable)
        assert node.core.state.load_queue(b"q") is None


async def test_acks_that_found_the_disk_full_are_journaled_later() -> None:
    async with looped() as (node, _):
        core, session = node.core, node.core.session()
        await node.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b", b"c"))
        core.attach(session, "q")
        core.take(session)
        core.ack(session, "k", 1, 2)
        core.ack(session, "k", 3, 4)
        node.disk.failure = full()
        waiting = asyncio.create_task(node.settled_acks())
        await asyncio.sleep(0.05)
        assert not waiting.done(), "nothing is told before it is durable"
        core.ack(session, "k", 2, 3)
        assert await node.settled_acks() is None
        assert await waiting is None
        core.dispatcher.close(session)
        assert not core.dispatcher.feeds
        assert describe_queue(core.state, b"q", 0).messages == 0


async def test_a_record_that_cannot_be_applied_stops_the_loop_with_its_lsn() -> None:
    async with looped() as (node, task):
        lsn = node.commit.applied_lsn + 1
        good, bad, after = await asyncio.gather(
            node.change(declare("q")), node.submit(99, b"unknown kind"), node.change(declare("r"))
        )
        assert isinstance(good, Effects) and good.refused is None
        for found in (bad, after):
            assert isinstance(found, Unavailable) and f"journal record {lsn + 1} " in found.message
        with pytest.raises(Corrupt, match=f"journal record {lsn + 1} .*kind 99"):
            await task


async def test_once_the_lease_may_be_over_nothing_is_answered() -> None:
    async with looped() as (node, task):
        assert isinstance(await node.change(declare("q")), Effects)
        node.leads = False
        changed, read = await asyncio.gather(node.change(declare("r")), node.submit(0, None))
        assert isinstance(changed, Fenced) and isinstance(read, Fenced)
        with pytest.raises(Fenced):
            await task
        assert isinstance(await node.change(declare("r")), Unavailable)


async def test_a_loop_that_is_stopped_waits_for_the_write_under_way() -> None:
    """The write went on behind the back of what used the journal next."""
    async with looped() as (node, task):
        node.disk.hold = held = threading.Event()
        changing = asyncio.create_task(node.change(declare("q")))
        while node.disk.hold is not None:  # noqa: ASYNC110 - another thread's doing
            await asyncio.sleep(0.001)
        task.cancel()
        assert isinstance(await changing, Unavailable)
        assert not (await asyncio.wait([task], timeout=0.1))[0], "the thread still writes"
        held.set()
        await asyncio.wait([task], timeout=10)
        assert task.cancelled() and len(node.disk.appended) == 1


async def test_what_waits_when_the_loop_is_stopped_is_told_once() -> None:
    async with looped() as (node, task):
        held = threading.Event()
        node.disk.hold = held
        asked = [asyncio.create_task(node.change(declare(f"q{number}"))) for number in range(5)]
        for _ in range(10):
            await asyncio.sleep(0)
        asked += [asyncio.create_task(node.change(declare("late")))]
        await asyncio.sleep(0)
        task.cancel()
        held.set()
        assert {type(found) for found in await asyncio.gather(*asked)} == {Unavailable}


async def test_a_source_that_floods_waits_for_room_and_the_others_do_not() -> None:
    async with looped() as (node, _):
        payload = change_of(*(publish("k", bytes(1 << 20)) for _ in range(7)))
        held = threading.Event()
        node.disk.hold = held
        answered: list[object] = []
        for _ in range(20):
            node.loop.submit(Item(Kind.CHANGE, payload, answered.append, answered.append), "flood")
        flood = asyncio.create_task(node.loop.room("flood"))
        await asyncio.wait_for(node.loop.room("other"), 10)
        await asyncio.sleep(0)
        assert not flood.done()
        held.set()
        await asyncio.wait_for(flood, 10)


def test_what_all_sources_together_may_have_pending_is_bounded() -> None:
    """Each fills what it may. Frames are small: large ones have a room of their own."""
    found = Looped(CoreDriver())
    frame, sources = bytes(60 << 10), range(100)
    for source in sources:
        while found.loop._has_room(source):
            found.loop.submit(Item(Kind.CHANGE, frame, lambda _: None, _fail), source)
            assert found.commit.pending_bytes <= 2 * PENDING_BYTES_DEFAULT, "it has no bound"
    least = len(sources) * (SOURCE_PENDING_BYTES_MIN + len(frame))
    assert found.commit.pending_bytes <= PENDING_BYTES_DEFAULT + least
    assert found.commit.pending_bytes_of(sources[0]) > 5 * found.commit.pending_bytes_of(sources[-1]) > 0


async def test_a_flood_of_one_source_is_not_before_the_next_of_another() -> None:
    async with looped() as (node, _):
        order: list[str] = []
        for source, count in (("flood", 500), ("other", 1)):
            for number in range(count):
                item = Item(Kind.CHANGE, change_of(declare(f"{source}{number}")), _note(order, source), _fail)
                item.operations = 100
                node.loop.submit(item, source)
        while len(order) < 501:  # noqa: ASYNC110 - the loop tells each item
            await asyncio.sleep(0.001)
        assert order.index("other") <= 2


def _note(order: list[str], source: str) -> Callable[[Effects], None]:
    return lambda _: order.append(source)


def _fail(error: ShoalError) -> None:
    raise error


TURNS = 7
"""As many turns of the loop a call needs to begin and to be answered, at least: gRPC takes it in two."""

LARGE = (declare("q"), bind("q", *(f"k{number}" for number in range(900))))


async def in_part(found: Looped) -> asyncio.Task[Effects | ShoalError]:
    """Returns while a large change is applied in part."""
    data = change_of(*LARGE)
    done: asyncio.Future[Effects | ShoalError] = asyncio.get_running_loop().create_future()
    found.loop.submit(Item(Kind.CHANGE, data, done.set_result, done.set_result, operations=901))
    async with asyncio.timeout(10):
        while found.loop.between_records.is_set():
            assert not done.done(), "it was applied at one go"
            await asyncio.sleep(0)
    return asyncio.ensure_future(done)


def slowly(patched: pytest.MonkeyPatch) -> None:
    """A slice is over after each step, however fast the machine is."""
    patched.setattr(commit_loop, "LOOP_SLICE_MS", 0)


async def test_a_large_record_is_applied_in_steps_and_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slowly(monkeypatch)
    async with looped() as (found, _):
        done = await in_part(found)
        lsn = found.commit.applied_lsn
        seen: list[int] = []
        found.loop.between(lambda: seen.append(len(list(found.core.tables.key.scan()))))
        assert not seen and not done.done() and len(list(found.core.tables.key.scan())) < 900
        assert isinstance(await done, Effects)
        assert seen == [900] and found.loop.between_records.is_set() and found.commit.applied_lsn == lsn + 1
        found.core.check()


async def test_other_work_gets_several_turns_of_the_loop_between_two_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC takes a new call in two: a busy node began 40 to 100 a second, and others waited for seconds."""
    slowly(monkeypatch)
    async with looped() as (found, _):
        done = await in_part(found)
        seen: list[int] = []
        async with asyncio.timeout(10):
            while not done.done():
                seen.append(len(list(found.core.tables.key.scan())))
                await asyncio.sleep(0)
        slices = len(set(seen)) - 1
        assert slices > 3 and len(seen) >= TURNS * slices


async def test_other_work_gets_as_many_turns_between_two_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 cheap calls beside an import, of small records, made others wait for 2.4 s."""
    steps = count()
    monkeypatch.setattr(commit_loop, "time", SimpleNamespace(perf_counter=lambda: float(next(steps))))
    async with looped() as (found, _):
        found.disk.hold = held = threading.Event()
        answered: list[object] = []
        for number in range(20):
            data = change_of(declare(f"q{number}"))
            found.loop.submit(Item(Kind.CHANGE, data, answered.append, _fail))
        held.set()
        turns = dict.fromkeys(range(21), 0)
        async with asyncio.timeout(10):
            while len(answered) < 20:
                turns[len(answered)] += 1
                await asyncio.sleep(0)
        assert min(turns[number] for number in range(1, 20)) >= TURNS


async def test_a_loop_stopped_in_the_middle_of_a_record_leaves_it_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slowly(monkeypatch)
    async with looped() as (found, task):
        done = await in_part(found)
        task.cancel()
        assert isinstance(await done, Unavailable), "the outcome is unknown"
        await asyncio.gather(task, return_exceptions=True)
        assert len(list(found.core.tables.key.scan())) == 900
        assert found.commit.applied_lsn == found.core.engine.state.lsn, "or a replay would apply it twice"
        found.core.check()


async def test_what_waited_for_all_of_a_record_is_done_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends of 1,520 sessions were one step."""
    slowly(monkeypatch)
    async with looped() as (found, _):
        done, seen = await in_part(found), list[int]()
        for number in range(20):
            found.loop.between(partial(seen.append, number))
        at = set[int]()
        async with asyncio.timeout(10):
            while len(seen) < 20:
                at.add(len(seen))
                await asyncio.sleep(0)
        assert isinstance(await done, Effects)
        assert seen == list(range(20)) and len(at) > 10, "others had turns"


async def test_what_waited_is_done_when_the_loop_is_stopped_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(monkeypatch)
    async with looped() as (found, task):
        await in_part(found)
        seen: list[int] = []
        for number in range(20):
            found.loop.between(partial(seen.append, number))
        async with asyncio.timeout(10):
            while not seen:  # noqa: ASYNC110 - the loop's doing
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert seen == list(range(20))


async def test_steps_see_what_is_done_between_records(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[float] = []
    async with looped() as (found, _):
        monkeypatch.setattr(StepWatch, "done", lambda steps, at: began.append(at))
        found.loop.between(lambda: None)
        assert len(began) == 1


async def test_who_waits_for_whole_records_gets_a_turn_between_two_and_never_in_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slowly(monkeypatch)
    monkeypatch.setattr(commit_loop, "OPERATION_US", -1_000_000)  # The next record never waits for a slice of its own.
    async with looped() as (found, _):
        assert isinstance(await found.change(declare("q")), Effects)
        names = [[f"k{n}-{number}" for number in range(900)] for n in range(5)]
        records = [change_of(bind("q", some[0]), bind("q", *some[1:])) for some in names]
        answered: list[object] = []
        for data in records:
            found.loop.submit(Item(Kind.CHANGE, data, answered.append, answered.append, operations=901))
        seen: list[int] = []

        async def look() -> None:
            while True:
                await found.loop.between_records.wait()
                seen.append(len(list(found.core.tables.key.scan())))
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        async with asyncio.timeout(10):
            await found.loop.between_records.wait()
            last = await found.change(declare("last"))
        looking.cancel()
        assert isinstance(last, Effects) and len(answered) == len(records)
        assert {count % 900 for count in seen} == {0}
        assert set(seen) >= {900, 1800, 2700, 3600}, "it had no turn"


async def test_acks_are_not_flushed_in_the_middle_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(monkeypatch)
    async with looped() as (found, _):
        done = await in_part(found)
        with pytest.raises(AssertionError):
            found.acks.flush()
        assert await found.settled_acks() is None
        assert done.done(), "it waited until the record was whole"


async def test_acks_are_taken_when_their_record_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken when it was submitted, they were skipped for as long as others bound from the key's history."""
    taken_at: list[int] = []

    def encode(acks: list[Acked], lsn: int) -> bytes:
        taken_at.append(lsn)
        return encode_acks(acks, lsn)

    monkeypatch.setattr(ack_flush, "encode_acks", encode)
    async with looped() as (found, _):
        core = found.core
        await found.change(declare("q"), bind("q", "k"))
        session = core.session()
        core.attach(session, "q")
        await found.change(publish("k", b"body"))
        core.pump()
        core.take(session)
        core.ack(session, "k", 0, 2)
        flush = found.acks
        found.disk.hold = held = threading.Event()
        written = asyncio.create_task(found.change(declare("other")))
        while found.commit._writing is None:  # noqa: ASYNC110 - the loop is doing it
            await asyncio.sleep(0)
        settled = asyncio.create_task(found.settled_acks())
        while not flush.under_way:  # noqa: ASYNC110 - it begins at its task's first turn
            await asyncio.sleep(0)
        assert not taken_at
        assert not flush.flush() and flush._records == 1, "one record will take all"
        held.set()
        await written
        assert await settled is None
        assert len(taken_at) == 1 and not core.dispatcher.acks.waiting


async def test_a_batch_that_cannot_be_gathered_is_answered_all_the_same() -> None:
    """What it had taken already was forgotten: it heard neither good nor bad."""

    def fails(_: Item) -> bytes:
        raise RuntimeError("a table cannot be read")

    async with looped() as (node, task):
        told: list[ShoalError] = []
        for make in (None, fails):
            node.loop.submit(Item(Kind.ACKS, None, lambda effects: None, told.append, make=make))
        with pytest.raises(RuntimeError):
            await task
        assert [type(error) for error in told] == [Unavailable, Unavailable]
