"""Starts asyncio tasks, as nothing else may (CONTRIBUTING.md): names them, keeps them, reports their failure.

Belongs here: the lifetime of background tasks, for servers and the client alike. Does not: retries, timeouts, threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

Result = TypeVar("Result")
OnFailure = Callable[[str, BaseException], None]

_log = logging.getLogger(__name__)


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result | None:
    """Runs `work` to its end and returns its result; when `stop` is set first, cancels it and returns None.

    Returns only once `work` has ended. An exception of `work` is raised, also one raised during its cancellation.
    """
    working = asyncio.get_running_loop().create_task(work, name="until stopped")
    stopping = asyncio.get_running_loop().create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait([working])
    return None if working.cancelled() else working.result()


class Tasks:
    """Keeps the background tasks of one owner. Use as `async with Tasks("redirector") as tasks:`, or call `close`.

    A task that fails is logged with its traceback, and `on_failure(name, error)` is called, from the event loop, once.
    A cancelled task has not failed.
    """

    def __init__(self, owner: str, on_failure: OnFailure | None = None) -> None:
        self._owner = owner
        self._on_failure = on_failure
        self._running: set[asyncio.Task[Any]] = set()
        """Every task that has started and is not done: the event loop itself keeps only weak references."""
        self._closed = False

    def start(
        self, name: str, coroutine: Coroutine[Any, Any, Result], *, awaited: bool = False
    ) -> asyncio.Task[Result]:
        """Starts a task called `owner/name`. `awaited`: the caller looks at its result, so its failure is not reported,
        not even where the caller is cancelled before it looks. Raises RuntimeError once closed."""
        if self._closed:
            coroutine.close()
            raise RuntimeError(f"{self._owner} is closed; it cannot start {name}")
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._owner}/{name}")
        self._running.add(task)
        task.add_done_callback(self._ended_awaited if awaited else self._ended)
        return task

    @property
    def closed(self) -> bool:
        """Returns whether no task can be started any more."""
        return self._closed

    def __len__(self) -> int:
        """Returns how many tasks run now."""
        return len(self._running)

    def cancel(self) -> None:
        """Cancels all tasks, without waiting for their end; `close` waits. No task can be started any more."""
        self._closed = True
        for task in self._running - {_current_task()}:
            task.cancel()

    async def close(self, wait_s: float | None = None) -> None:
        """Cancels all tasks and waits until each has ended, at most `wait_s` seconds if given: a task that has not
        ended then is logged and left. The calling task, if it is one of them, is left alone."""
        self.cancel()
        others = self._running - {_current_task()}
        if not others:
            return
        _, left = await asyncio.wait(others, timeout=wait_s)
        for task in left:
            _log.error(
                "task %s did not end within %g s of its cancellation, and is not waited for: please report it",
                *(task.get_name(), wait_s),
            )

    async def __aenter__(self) -> Tasks:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _ended_awaited(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieved here, so that asyncio does not log it when the caller does not look.

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        _log.error("task %s failed: %s", task.get_name(), error, exc_info=error)
        if self._on_failure is not None:
            self._on_failure(task.get_name(), error)


async def all_ended(*works: Coroutine[Any, Any, Result]) -> list[Result | BaseException]:
    """Runs all `works` at once, and returns the result or the error of each, in their order, once all have ended.

    Where the caller is cancelled, so are they, and the CancelledError that it gets is its own, with its message: anyio,
    and so each ASGI server, knows its cancellations by it. asyncio.gather, told to return errors, may lose it.
    """
    async with Tasks("one of several") as tasks:
        running = [tasks.start(str(number), work, awaited=True) for number, work in enumerate(works)]
        if running:
            await asyncio.wait(running)
    return [asyncio.CancelledError() if task.cancelled() else task.exception() or task.result() for task in running]


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # Called from outside of the loop.
