"""Who watches the map: so many on one connection, and where there is no room the one with most gives one up."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_redirector.adapters.tally import Tally
from shoal_redirector.adapters.watchers import Watchers
from shoal_redirector.limits import WATCHERS_EACH_MAX


class Crowd:
    """Watchers that stay. `refused`: those that were, also later."""

    def __init__(self, watchers_max: int) -> None:
        self.tally = Tally(watchers_max)
        self.watchers = Watchers(self.tally)
        self.there, self.refused = Counter[str](), Counter[str]()
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, *peers: str) -> None:
        self.tasks += [asyncio.create_task(self._watch(peer)) for peer in peers]
        for _ in range(4):
            await asyncio.sleep(0)

    async def _watch(self, peer: str) -> None:
        try:
            async with self.watchers.place(peer):
                self.there[peer] += 1
                try:
                    await asyncio.Event().wait()
                finally:
                    self.there[peer] -= 1
        except ResourceExhausted:
            self.refused[peer] += 1

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert self.tally.watchers == 0 and not self.watchers._by_peer


async def test_a_connection_has_its_bound() -> None:
    crowd = Crowd(10 * WATCHERS_EACH_MAX)
    await crowd.come(*["a"] * (WATCHERS_EACH_MAX + 3), "b")
    assert crowd.there == {"a": WATCHERS_EACH_MAX, "b": 1} and crowd.refused == {"a": 3}
    assert (crowd.tally.watchers, crowd.tally.watchers_refused) == (WATCHERS_EACH_MAX + 1, 3)
    await crowd.end()


async def test_where_there_is_no_room_the_connection_with_most_gives_one_up() -> None:
    crowd = Crowd(6)
    await crowd.come(*"aaaa", *"bb")
    await crowd.come("c")
    assert crowd.there == {"a": 3, "b": 2, "c": 1} and crowd.refused == {"a": 1}
    await crowd.come("c")
    assert crowd.there == {"a": 2, "b": 2, "c": 2} and crowd.refused == {"a": 2}
    await crowd.come("a", "b")
    assert crowd.there == {"a": 2, "b": 2, "c": 2} and crowd.refused == {"a": 3, "b": 1}
    assert crowd.tally.watchers == 6
    await crowd.end()


async def test_where_each_has_one_the_newcomer_is_refused() -> None:
    crowd = Crowd(2)
    await crowd.come("a", "b")
    with pytest.raises(ResourceExhausted, match="--memory-mib"):
        async with crowd.watchers.place("c"):
            pass
    assert crowd.there == {"a": 1, "b": 1}
    await crowd.end()
