"""Places: connections in turn, an end to each line, and less patience where others wait."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_runtime.limits import BLAME_S
from shoal_runtime.places import Places, PlacesLimits
from tests.runtime.conftest import until

LIMITS = PlacesLimits(places_max=4, places_each_max=3, waiting_max=6, waiting_each_max=5)


class Crowd:
    """Calls that want places. `order`: who got one; `refused`: who got none. `release` lets them go."""

    def __init__(self) -> None:
        self.places = Places("tries", LIMITS)
        self.order: list[str] = []
        self.refused = Counter[str]()
        self.release = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, *peers: str) -> None:
        self.tasks += [asyncio.create_task(self._call(peer)) for peer in peers]
        for _ in range(3):
            await asyncio.sleep(0)

    async def _call(self, peer: str) -> None:
        try:
            async with self.places.place(peer):
                self.order.append(peer)
                await self.release.wait()
        except ResourceExhausted as error:
            assert error.subject == "tries"
            self.refused[peer] += 1

    async def end(self) -> None:
        """Whatever happened, nothing is left over."""
        self.release.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        places = self.places
        assert (places.waiting, places._free, +places._held) == (0, LIMITS.places_max, Counter())
        assert not places._lines and not places._served_lines and not places._last
        assert not places.crowded and not places._holders


class Holders:
    """Calls that have places, or wait for them, and do nothing. `ended`: whose patience ended, in order."""

    def __init__(self, limits: PlacesLimits, crowded_s: float) -> None:
        self.places = Places("tries", limits)
        self.ended: list[str] = []
        self._crowded_s = crowded_s
        self._tasks: list[asyncio.Task[None]] = []

    async def come(self, *peers: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self._hold(peer)) for peer in peers]
        self._tasks += tasks
        await asyncio.sleep(0)
        return tasks

    async def _hold(self, peer: str) -> None:
        async with self.places.place(peer):
            try:
                async with self.places.patience(peer, 3600, self._crowded_s):
                    await asyncio.Event().wait()
            except TimeoutError:
                self.ended.append(peer)
                self.places.blame(peer)

    async def end(self) -> None:
        """Whatever happened, nothing is left over."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert not self.places._holders and not self.places.waiting


async def test_connections_take_turns_and_none_has_all() -> None:
    crowd = Crowd()
    await crowd.come(*"aaaaa", *"bb", "c")
    assert crowd.order == ["a", "a", "a", "b"] and crowd.places.crowded
    for task in crowd.tasks[:2]:
        task.cancel()
    await asyncio.gather(*crowd.tasks[:2], return_exceptions=True)
    await crowd.come()
    assert crowd.order[4:] == ["a", "b"]
    await crowd.end()
    assert Counter(crowd.order) == {"a": 5, "b": 2, "c": 1} and not crowd.refused


async def test_of_a_full_line_the_connection_with_most_gives_way() -> None:
    crowd = Crowd()
    await crowd.come(*"aaa", "b")
    await crowd.come(*"aaaaa", "a")
    assert crowd.refused == {"a": 1}, "its own line is full"
    await crowd.come("b", "c")
    assert crowd.refused == {"a": 2} and crowd.places.waiting == 6
    await crowd.come("c", "b", "c")
    assert crowd.refused == {"a": 4, "c": 1}, "two of each wait: nobody has most"
    await crowd.end()


async def test_one_that_gives_up_leaves_the_line() -> None:
    crowd = Crowd()
    await crowd.come(*"aaa", "b", *"bbb")
    for task in crowd.tasks[4:6]:
        task.cancel()
    await crowd.come()
    assert crowd.places.waiting == 1
    await crowd.end()
    assert crowd.order == [*"aaa", *"bb"]


async def test_who_has_a_place_has_less_time_once_others_wait() -> None:
    crowd, ended = Crowd(), asyncio.Event()

    async def hold() -> None:
        async with crowd.places.place("slow"):
            with pytest.raises(TimeoutError):
                async with crowd.places.patience("slow", 3600, 0.01):
                    await asyncio.Event().wait()
        ended.set()

    holding = asyncio.create_task(hold())
    await crowd.come(*"aaa", *"aa")
    await asyncio.sleep(0.05)
    assert not ended.is_set(), "the others wait for places of their own connection"
    await crowd.come("b")
    await until(ended.is_set)
    await crowd.come()
    assert crowd.order == [*"aaa", "b"]
    await holding
    await crowd.end()


async def test_alone_it_has_all_its_time() -> None:
    places = Places("tries", LIMITS)
    async with places.place("a"):
        with pytest.raises(TimeoutError):
            async with places.patience("a", 0.01, 0.0):
                await asyncio.Event().wait()
        async with places.patience("a", 3600, 0.0):
            await asyncio.sleep(0.01)


async def test_who_let_its_time_pass_comes_last() -> None:
    crowd = Crowd()
    for peer in ("silent", "mute"):
        crowd.places.blame(peer)
    await crowd.come("a", "a", "b", "b", "silent", "mute", "c")
    assert crowd.order == ["a", "a", "b", "b"]
    crowd.release.set()
    await asyncio.gather(*crowd.tasks)
    assert crowd.order[4:] == ["c", "silent", "mute"]
    await crowd.end()


async def test_of_a_full_line_who_let_its_time_pass_gives_way() -> None:
    crowd = Crowd()
    crowd.places.blame("silent")
    await crowd.come("a", "a", "b", "b")
    await crowd.come("silent", "c", "d", "e", "f", "g")
    await crowd.come("honest")
    assert crowd.refused == {"silent": 1}
    await crowd.come("late")
    assert crowd.refused == {"silent": 1, "late": 1}
    await crowd.end()


async def test_as_many_are_hurried_as_wait_and_none_once_nobody_does() -> None:
    """One that came and left again ended all that had places."""
    holders = Holders(LIMITS, crowded_s=0.05)
    places = holders.places
    await holders.come(*"abcd")
    (passing,) = await holders.come("passing")
    assert places.crowded
    passing.cancel()
    await asyncio.gather(passing, return_exceptions=True)
    dues = [holder.when() for holder in places._holders]
    assert dues == [holder.most_at_s for holder in places._holders.values()] and places.waiting == 0
    async with places.place("newcomer"):
        pass
    assert holders.ended == ["a"], "the one that had its place for longest, and no other"
    await holders.end()


async def test_with_many_in_line_each_has_less_time() -> None:
    """Twenty connections of which nothing came kept a new one waiting for ten times what each had."""
    limits = PlacesLimits(places_max=2, places_each_max=1, waiting_max=100, waiting_each_max=50, line_s=0.5)
    holders = Holders(limits, crowded_s=1.0)
    await holders.come(*(f"silent {number}" for number in range(20)))
    async with asyncio.timeout(5), holders.places.place("honest"):
        assert len(holders.ended) >= 19
    await holders.end()


async def test_one_that_was_served_has_every_other_turn() -> None:
    """Two thousand connections of which nothing came made one that had always been quick wait for seconds."""
    crowd = Crowd()
    crowd.places.praise("known")
    crowd.places.praise("quick")
    await crowd.come(*"abcd", *"efg")
    await crowd.come("known", "known", "quick")
    crowd.release.set()
    await asyncio.gather(*crowd.tasks)
    assert crowd.order[4:] == ["known", "e", "quick", "f", "known", "g"]
    await crowd.end()


async def test_one_that_was_served_and_let_its_time_pass_twice_comes_last() -> None:
    crowd = Crowd()
    crowd.places.praise("once")
    await crowd.come(*"abcd", "once", "e")
    for _ in range(2):
        crowd.places.blame("once")
    crowd.places.praise("once")
    await crowd.come("once")
    crowd.release.set()
    await asyncio.gather(*crowd.tasks)
    assert crowd.order[4:] == ["e", "once", "once"]
    await crowd.end()


async def test_one_that_is_served_while_it_waits_has_every_other_turn_from_then_on() -> None:
    """One that always had a few calls in line stayed among those of which nobody had heard."""
    crowd = Crowd()
    await crowd.come(*"abcd", "busy", "busy", "e", "f")
    crowd.places.praise("busy")
    await crowd.come("busy")
    crowd.release.set()
    await asyncio.gather(*crowd.tasks)
    assert crowd.order[4:] == ["busy", "e", "busy", "f", "busy"]
    await crowd.end()


async def test_one_that_was_served_is_not_blamed_the_first_time() -> None:
    """A busy node cut off a client that had always been quick; all its calls then came last for two minutes."""
    crowd = Crowd()
    crowd.places.praise("quick")
    crowd.places.blame("quick")
    await crowd.come(*"abcd", "quick", "e")
    crowd.release.set()
    await asyncio.gather(*crowd.tasks)
    assert crowd.order[4:] == ["quick", "e"]
    await crowd.end()


async def test_one_that_had_less_than_its_time_is_not_blamed() -> None:
    crowd = Crowd()
    crowd.places.blame("hurried", in_full=False)
    await crowd.come(*"abcd", "hurried", "e")
    crowd.release.set()
    await asyncio.gather(*crowd.tasks)
    assert crowd.order[4:] == ["hurried", "e"]
    await crowd.end()


async def test_those_that_were_blamed_and_wait_hurry_no_others() -> None:
    """Six connections that had been blamed, and still waited, kept all others hurried."""
    limits = PlacesLimits(places_max=2, places_each_max=1, waiting_max=6, waiting_each_max=5)
    holders = Holders(limits, crowded_s=0.05)
    for peer in ("blamed", "other blamed"):
        holders.places.blame(peer)
    await holders.come("honest", "blamed", "other blamed")
    await until(lambda: bool(holders.ended))
    assert holders.ended == ["blamed"]
    honest, *_ = holders.places._holders
    assert honest.when() == holders.places._holders[honest].most_at_s
    await holders.end()


async def test_of_a_full_line_those_that_were_served_give_way_as_others() -> None:
    """Else whoever asked once could keep all newcomers out."""
    crowd = Crowd()
    crowd.places.praise("known")
    await crowd.come(*"abcd", *["known", "known", "known", "known", "known"], "e")
    await crowd.come("f")
    assert crowd.refused == {"known": 1}
    await crowd.end()


async def test_time_that_is_over_is_over_however_many_come() -> None:
    """Each that came gave it a little more."""
    places = Places("tries", PlacesLimits(places_max=2, places_each_max=1, waiting_max=6, waiting_each_max=5))

    async def hold(peer: str, crowded_s: float) -> None:
        async with places.place(peer), places.patience(peer, 3600, crowded_s):
            await asyncio.Event().wait()

    slow, other = asyncio.create_task(hold("slow", 0.0)), asyncio.create_task(hold("other", 3600))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(hold("waiting", 3600))
    async with asyncio.timeout(5):
        while not slow.done():
            coming = asyncio.create_task(hold("coming", 3600))
            await asyncio.sleep(0)
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
    assert isinstance(slow.exception(), TimeoutError)
    for task in (other, waiting):
        task.cancel()
    await asyncio.gather(other, waiting, return_exceptions=True)


async def test_blame_ends_also_for_those_that_wait_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of one that was blamed stayed last for as long as it was not empty."""
    now_s = 0.0
    monkeypatch.setattr("shoal_runtime.places.time.monotonic", lambda: now_s)
    crowd = Crowd()
    crowd.places.blame("once")
    await crowd.come("a", "a", "b", "b")
    await crowd.come("once", "c")
    now_s += BLAME_S + 1
    await crowd.come("d")
    await crowd.come("e")
    for task in crowd.tasks[:3]:
        task.cancel()
        await crowd.come()
    assert crowd.order[4:] == ["c", "d", "once"], "it comes before those that came later"
    await crowd.end()


async def test_one_that_is_blamed_puts_nobody_else_out_of_a_full_line() -> None:
    crowd = Crowd()
    await crowd.come("a", "a", "b", "b")
    await crowd.come(*"cdefgh")
    crowd.places.blame("silent")
    await crowd.come("silent")
    assert crowd.refused == {"silent": 1}
    await crowd.end()
