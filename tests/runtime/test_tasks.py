"""Tasks: names, failure reports, and nothing left running after close."""

import asyncio
import logging

import pytest

from shoal_runtime.tasks import Tasks, all_ended, run_until


async def test_a_task_is_named_after_its_owner_and_returns_its_result() -> None:
    async def name() -> str:
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    async with Tasks("node") as tasks:
        assert await tasks.start("names", name()) == "node/names"
        assert len(tasks) == 0


async def test_a_failure_is_logged_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    failed: list[tuple[str, str]] = []

    async def fails() -> None:
        raise ValueError("no disk")

    async with Tasks("node", lambda name, error: failed.append((name, str(error)))) as tasks:
        with caplog.at_level(logging.ERROR):
            await asyncio.wait([tasks.start("writer", fails())])
            await asyncio.sleep(0)
    assert failed == [("node/writer", "no disk")]
    assert "task node/writer failed: no disk" in caplog.text


async def test_close_cancels_and_waits_for_cleanup_and_reports_no_failure() -> None:
    failed: list[str] = []
    cleaned = False

    async def runs_until_cancelled() -> None:
        nonlocal cleaned
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned = True

    tasks = Tasks("node", lambda name, _: failed.append(name))
    tasks.start("runs", runs_until_cancelled())
    await asyncio.sleep(0)
    await tasks.close()
    assert cleaned
    assert failed == []
    assert len(tasks) == 0


async def test_a_closed_owner_starts_nothing() -> None:
    tasks = Tasks("node")
    await tasks.close()
    with pytest.raises(RuntimeError, match="node is closed; it cannot start late"):
        tasks.start("late", asyncio.sleep(0))


async def test_a_task_may_close_its_own_owner() -> None:
    tasks = Tasks("node")
    other = tasks.start("other", asyncio.Event().wait())
    await tasks.start("closer", tasks.close())
    assert other.cancelled()


async def test_a_failure_that_its_caller_looks_at_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("mine")

    failures: list[str] = []
    async with Tasks("owner", lambda name, error: failures.append(name)) as tasks:
        task = tasks.start("work", fail(), awaited=True)
        with pytest.raises(ValueError, match="mine"):
            await task
        assert len(tasks) == 0
    assert not failures and not caplog.records


async def test_work_that_ends_before_the_stop_gives_its_result_or_its_error() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    async def works() -> int:
        return 7

    assert await run_until(asyncio.Event(), works()) == 7
    with pytest.raises(ValueError, match="broken"):
        await run_until(asyncio.Event(), fails())


async def test_work_that_is_stopped_is_cancelled_and_waited_for() -> None:
    stop, cleaned = asyncio.Event(), asyncio.Event()

    async def waits() -> int:
        stop.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()
        return 7

    assert await run_until(stop, waits()) is None
    assert cleaned.is_set()


async def turns_of_the_loop(count: int) -> int:
    for _ in range(count):
        await asyncio.sleep(0)
    return count


@pytest.mark.parametrize("before", range(1, 6))
@pytest.mark.parametrize("lengths", [(4, 1), (1, 4), (3, 3), (0, 5), (5, 0)])
async def test_who_waits_for_several_and_is_cancelled_is_told_by_whom(lengths: tuple[int, int], before: int) -> None:
    """anyio knows its own cancellations by their message. asyncio.gather lost it, and a WebSocket's handler that was
    cancelled while an inbox closed ended with an error of the server."""
    told: list[tuple[str, ...]] = []

    async def waits() -> None:
        try:
            assert await all_ended(*map(turns_of_the_loop, lengths)) == list(lengths)
        except asyncio.CancelledError as error:
            told.append(error.args)
            raise

    waiting = asyncio.ensure_future(waits())
    await turns_of_the_loop(before)
    asked = waiting.cancel("by the scope")
    await asyncio.wait([waiting])
    assert waiting.cancelled() is asked, "it went on, as if it had not been told to end"
    assert told == [("by the scope",)] * asked


async def test_each_of_several_has_its_result_or_its_error(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> int:
        raise ValueError("no disk")

    async def is_cancelled() -> int:
        raise asyncio.CancelledError

    one, two, three = await all_ended(fails(), turns_of_the_loop(2), is_cancelled())
    assert str(one) == "no disk" and two == 2 and isinstance(three, asyncio.CancelledError)
    assert await all_ended() == []
    assert not caplog.records, "who waits for them has their errors"


async def test_several_have_ended_when_a_cancelled_caller_goes_on() -> None:
    ended: list[int] = []

    async def cleans(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns_of_the_loop(3)
            ended.append(number)

    waiting = asyncio.ensure_future(all_ended(cleans(1), cleans(2)))
    await turns_of_the_loop(2)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert sorted(ended) == [1, 2]
