"""Keeps the processes of a local cluster running: reports each that ends, and starts it again with the same arguments.

Belongs here: one protocol for all kinds of children: start, notice the end, pause, start again, stop in order. Does
not: how a child starts (child.py and its kinds), which children there are (cluster.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from shoal_contract.errors import ShoalError
from shoal_local import limits
from shoal_local.child import Facts, LocalChild, how_it_ended
from shoal_local.health import Health
from shoal_runtime.tasks import Tasks

OnReady = Callable[[Facts], None]


@dataclass(slots=True)
class _Kept:
    """Keeps a child, with what the supervisor remembers of it."""

    child: LocalChild
    on_ready: OnReady
    pause_s: float = limits.RESTART_S_MIN
    """The pause before the next start, in seconds; it doubles with each end in a row."""
    complaint: str = ""
    """The last error reported for a failed start, so that it is reported once."""
    down: bool = False
    """True if it was ended on purpose: then it stays down until `restart`."""
    watch: asyncio.Task[None] | None = None
    health: asyncio.Task[None] | None = None


class Supervisor:
    """Keeps children running. `say`: called with a sentence at each end and each new start."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._kept: dict[str, _Kept] = {}
        self._tasks = Tasks("supervisor")

    def add(self, child: LocalChild, on_ready: OnReady) -> None:
        """Adds a child. `on_ready` is called with its facts after each start."""
        assert child.name not in self._kept, "already there"
        self._kept[child.name] = _Kept(child, on_ready)

    async def start(self, name: str) -> None:
        """Starts a child for the first time, and keeps it running from then on. Raises what its start raises."""
        kept = self._kept[name]
        await self._start_child(kept)
        self._keep(kept)

    def try_on(self, name: str, problem: ShoalError) -> None:
        """Keeps trying to start a child after its first start failed with `problem`, which was reported."""
        kept = self._kept[name]
        kept.complaint = str(problem)
        self._keep(kept)

    def pid(self, name: str) -> int:
        return self._kept[name].child.pid

    async def kill(self, name: str) -> None:
        """Kills a child as kill -9; it stays down until `restart`."""
        self._kept[name].down = True
        await self._kept[name].child.kill()

    async def crash(self, name: str) -> None:
        """Kills a child as kill -9 from elsewhere would: the supervisor starts it again."""
        await self._kept[name].child.kill()

    async def restart(self, name: str) -> None:
        """Starts a child again, after a clean stop if it still runs. Returns when it is ready."""
        kept = self._kept[name]
        kept.down, kept.child.ready = True, False
        if kept.watch is not None:
            kept.watch.cancel()
            await asyncio.wait([kept.watch])
        await kept.child.stop()
        await self._start_child(kept)
        kept.down = False
        self._keep(kept)

    def ended_well(self, name: str) -> bool:
        """Returns whether a child has ended, with code 0."""
        return self._kept[name].child.ended_well

    def running(self, name: str) -> bool:
        return name in self._kept and self._kept[name].child.running

    async def stop(self, *order: Collection[str], sparing: Collection[str] = ()) -> None:
        """Ends the children, one group after the other, and each group together. Children without a group end first.
        Those of `sparing` run on, without being started again."""
        await self._tasks.close()
        named = {name for group in order for name in group} | set(sparing)
        for group in ([name for name in self._kept if name not in named], *order):
            await asyncio.gather(*(self._kept[name].child.stop() for name in group if name in self._kept))

    def _keep(self, kept: _Kept) -> None:
        kept.watch = self._tasks.start(kept.child.name, self._keep_running(kept))
        if kept.health is None:
            kept.health = self._tasks.start(f"{kept.child.name} health", Health(kept.child, self._say).run())

    async def _keep_running(self, kept: _Kept) -> None:
        child, loop = kept.child, asyncio.get_running_loop()
        while True:
            if child.ready:
                since_s = loop.time()
                code = await child.wait()
                child.ready = False
                if kept.down:
                    return
                if loop.time() - since_s > limits.STEADY_S:
                    kept.pause_s = limits.RESTART_S_MIN
                self._say(f"{child.name} ended {how_it_ended(code)}; starting it again in {kept.pause_s:g} s")
            await asyncio.sleep(kept.pause_s)
            kept.pause_s = min(2 * kept.pause_s, limits.RESTART_S_MAX)
            if kept.down:
                return
            await self._start_again(kept)

    async def _start_again(self, kept: _Kept) -> None:
        name = kept.child.name
        try:
            await self._start_child(kept)
        except (ShoalError, OSError) as error:
            if str(error) != kept.complaint:
                kept.complaint = str(error)
                self._say(f"{name} did not start: {error}; trying again, at most every {limits.RESTART_S_MAX:g} s")
        else:
            kept.complaint = ""
            self._say(f"{name} is ready again")

    async def _start_child(self, kept: _Kept) -> None:
        facts = await kept.child.start()
        kept.child.ready = True
        kept.on_ready(facts)
