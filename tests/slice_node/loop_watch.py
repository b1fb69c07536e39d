"""A broker with an event loop of its own, in a thread; and how much processor time one callback of that loop takes.

Processor time of the thread, not of the wall: other work on the machine does not count. Garbage collection does not
count either, since here it looks at all that the tests loaded; a node freezes what it loaded.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal_slice_node.adapters.broker import Broker

from .brokers import running, served

START_S = 60


class Longest:
    """`seconds`: what the longest callback took since the measure began. `what`: which that was."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.what = ""


class WatchedBroker:
    """`address`: where it serves. Use `measured` around what is asked of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = threading.Event()
        self._longest: Longest | None = None
        self._thread = threading.Thread(target=self._run, name="broker")
        self.address = ""
        self.broker: Broker
        self.loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(START_S), "the broker does not start"
        assert self._failure is None, self._failure

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_S)
        assert self._failure is None, self._failure

    @contextmanager
    def measured(self) -> Iterator[Longest]:
        """Of the broker's loop alone."""
        longest = self._longest = Longest()
        gc.collect()
        gc.disable()
        try:
            with _each_callback(self._thread.ident, longest):
                yield longest
        finally:
            gc.enable()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                self._failure = error
                self._ready.set()

    async def _serve(self) -> None:
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with running(self._folder) as self.broker, served(self.broker, self._folder) as self.address:
            self._ready.set()
            await self._stop.wait()


@contextmanager
def _each_callback(thread: int | None, longest: Longest) -> Iterator[None]:
    run = Handle._run

    def measured(handle: Any) -> None:
        if threading.get_ident() != thread:
            run(handle)
            return
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        if took > longest.seconds:
            longest.seconds, longest.what = took, repr(handle)

    Handle._run = measured  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Handle._run = run  # type: ignore[method-assign]
