"""Maps of several redirectors: the newest counts, and one that is not the cluster's does not count for ever."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from shoal import map_watch
from shoal.map_watch import MapWatch
from shoal.telling import Telling
from shoal.transport.base import Transport
from shoal_contract.wire.redirector_pb2 import WatchMapResponse
from shoal_runtime.tasks import Tasks

WAIT_S = 20


class Redirectors:
    """Tells each redirector's maps: to each stream the newest one at once, and each later one."""

    def __init__(self) -> None:
        self.maps: dict[str, int | None] = {}
        self.changed = asyncio.Event()
        self.told: set[str] = set()

    def tell(self, address: str, version: int | None) -> None:
        """Lets a redirector tell a map of this version; None: it is away."""
        self.maps[address] = version
        self.change()

    def change(self) -> None:
        """Wakes all that wait for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def watch_map(self, address: str) -> _Maps:
        return _Maps(self, address)


class _Maps:
    def __init__(self, redirectors: Redirectors, address: str) -> None:
        self._redirectors = redirectors
        self._address = address
        self._told: int | None = None

    async def read(self) -> WatchMapResponse | None:
        while (version := self._redirectors.maps[self._address]) == self._told and version is not None:
            self._redirectors.told.add(self._address)  # And read: it is asked for the next one.
            self._redirectors.change()
            await self._redirectors.changed.wait()
        self._told = version
        if version is None:
            return None
        response = WatchMapResponse(map_version=version, partitions=2, owners=[0, 0])
        response.slices.add(slice="s01", address=f"{self._address}/{version}")
        return response

    def cancel(self) -> None:
        raise AssertionError("nothing is suspected here")

    async def close(self) -> None:
        """Frees nothing."""


async def version_is(watch: MapWatch, version: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while watch.current.version != version:
            await watch.change(WAIT_S)


@pytest.mark.parametrize("addresses", [["one"], ["one", "two"]])
async def test_a_map_that_no_redirector_tells_any_more_gives_way_after_a_while(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One map of version 2**64 - 1 made a client useless until its process was started again, without a word."""
    monkeypatch.setattr(map_watch, "MAP_BEHIND_S", 0.2)
    caplog.set_level(logging.WARNING, "shoal")
    redirectors, tasks = Redirectors(), Tasks("test")
    for address in addresses:
        redirectors.tell(address, 7)
    redirectors.tell("one", 2**64 - 1)
    watch = MapWatch(addresses, cast("Transport", cast("Any", redirectors)), Telling())
    watch.start(tasks)
    await watch.first(WAIT_S)
    assert watch.current.version == 2**64 - 1
    redirectors.tell("one", None if len(addresses) > 1 else 7)
    await version_is(watch, 7)
    assert f"is older than version {2**64 - 1}, which was told before" in caplog.text
    assert f"in place of {2**64 - 1}, from" in caplog.text
    redirectors.tell(addresses[-1], 8)
    await version_is(watch, 8)
    await tasks.close()


async def test_an_older_map_is_left_out() -> None:
    redirectors, tasks = Redirectors(), Tasks("test")
    redirectors.tell("old", 6)
    redirectors.tell("new", 7)
    watch = MapWatch(["new", "old"], cast("Transport", cast("Any", redirectors)), Telling())
    watch.start(tasks)
    await watch.first(WAIT_S)
    redirectors.tell("new", None)
    async with asyncio.timeout(WAIT_S):
        while "old" not in redirectors.told:
            await redirectors.changed.wait()
    assert watch.current.version == 7
    redirectors.tell("old", 8)
    await version_is(watch, 8)
    await tasks.close()
