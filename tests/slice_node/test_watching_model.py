"""Watches beside a naive model: whatever happens, and from whichever place a watch goes on, its state is the model's in
the end, and no change is told twice (ToldWatch asserts it)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.watching import member_line, watching
from tests.slice_node.core_driver import CoreDriver, bind, declare, drop, unbind
from tests.slice_node.told_watch import ToldWatch, settle

QUEUES = ["a", "b", "c", "d"]
KEYS = ["room/1", "room/2", "hall"]
MANY = [f"far/{number}" for number in range(150)]
"""Keys of a queue that is reclaimed in the background when it is dropped."""
WATCHED: list[dict[str, Any]] = [{"key": key} for key in KEYS] + [{"prefix": prefix} for prefix in ("room/", "", "x")]

queues, keys = st.sampled_from(QUEUES), st.sampled_from(KEYS)


class Watches(RuleBasedStateMachine):
    """`bound`: queue -> its keys. `attached`: session number -> queues that it consumes, whether they exist or not."""

    def __init__(self) -> None:
        super().__init__()
        self.core = CoreDriver()
        self.life = 1
        self.core.node.watching.begin(1)
        self.bound: dict[str, set[str]] = {}
        self.attached: dict[int, tuple[Session, list[str]]] = {}
        self.watches: list[tuple[dict[str, Any], ToldWatch]] = []
        self.places: list[tuple[dict[str, Any], wire.WatchPosition, dict[str, bool] | None, dict[str, Any]]] = []
        """Where watches stood once, with the state that they had then."""

    @initialize()
    def begin(self) -> None:
        for queue in QUEUES[:3]:
            self.declare(queue)
            self.bind(queue, KEYS[:2], False)
        for what in WATCHED[0], WATCHED[3]:
            self.watch(what)
        settle(self.core)

    @rule(queue=queues)
    def declare(self, queue: str) -> None:
        self.core.change(declare(queue))
        self.bound.setdefault(queue, set())

    @rule(queue=queues, some=st.lists(keys, min_size=1, unique=True), many=st.booleans())
    def bind(self, queue: str, some: list[str], many: bool) -> None:
        wanted = some + MANY * many
        self.core.change(bind(queue, *wanted))
        if queue in self.bound:
            self.bound[queue].update(wanted)

    @rule(queue=queues, some=st.lists(keys, min_size=1, unique=True))
    def unbind(self, queue: str, some: list[str]) -> None:
        self.core.change(unbind(queue, *some))
        if queue in self.bound:
            self.bound[queue].difference_update(some)

    @rule(queue=queues, key=keys)
    def back_and_forth(self, queue: str, key: str) -> None:
        """All in one record."""
        self.core.change(declare(queue), bind(queue, key), unbind(queue, key), drop(queue), declare(queue))
        self.core.change(bind(queue, key))
        self.bound[queue] = {key}

    @rule(queue=queues)
    def drop(self, queue: str) -> None:
        self.core.change(drop(queue))
        self.bound.pop(queue, None)
        self.members_are_told_at_once()

    @precondition(lambda self: len(self.attached) < 3)
    @rule(some=st.lists(queues, min_size=1, unique=True))
    def attach(self, some: list[str]) -> None:
        session = self.core.session()
        for handle, queue in enumerate(some, 1):
            self.core.attach(session, queue, handle)
        self.attached[session.number] = session, some

    @precondition(lambda self: self.attached)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.attached)))
        self.core.dispatcher.close(self.attached.pop(number)[0])

    @rule(what=st.sampled_from(WATCHED))
    def watch(self, what: dict[str, Any]) -> None:
        self.watches.append((what, ToldWatch(self.core, **what)))

    @precondition(lambda self: self.watches)
    @rule(data=st.data(), responses=st.integers(1, 3))
    def take(self, data: st.DataObject, responses: int) -> None:
        """A watch that reads slowly."""
        what, watch = data.draw(st.sampled_from(self.watches))
        for _ in range(responses):
            if watch.take_one() is not None and watch.position.life:
                members = None if watch.members is None else dict(watch.members)
                self.places.append((what, watch.position, members, dict(watch.counts)))

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        self.go_on_from(*data.draw(st.sampled_from(self.places)))

    def go_on_from(
        self, what: dict[str, Any], place: wire.WatchPosition, members: dict[str, bool] | None, counts: dict[str, Any]
    ) -> None:
        watch = ToldWatch(self.core, **what, after=place)
        watch.members, watch.counts = None if members is None else dict(members), dict(counts)
        self.watches.append((what, watch))

    @precondition(lambda self: self.watches)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        ended = data.draw(st.sampled_from(self.watches))
        self.watches.remove(ended)
        ended[1].leave()

    @rule(ms=st.sampled_from([20, 300, 5_000, 70_000]))
    def time_passes(self, ms: int) -> None:
        settle(self.core, ms)

    @precondition(lambda self: len(self.places) > 5)
    @rule()
    def restart(self) -> None:
        self.places = self.places[-4:]
        self.core.restart()
        self.life += 1
        self.core.node.watching.begin(self.life)
        self.attached.clear()
        self.watches.clear()
        for what, place, _, _ in self.places:
            self.go_on_from(what, place, None, {})

    @invariant()
    def tables_are_sound(self) -> None:
        self.core.check()

    @rule()
    def members_are_told_at_once(self) -> None:
        """Once they were looked up: whatever waits for its turn, as long as sessions' ends do not."""
        self.core.pump()
        self.take_in()
        for what, watch in self.watches:
            if "key" in what and watch.responses:
                watch.take()
                assert watch.members == self.members(what["key"])

    def take_in(self) -> None:
        """So few changes are taken in at once."""

    @rule()
    def all_is_told(self) -> None:
        """Once all is reclaimed and due, each watch has the model's state."""
        self.core.settle()
        settle(self.core)
        for what, watch in self.watches:
            watch.take()
            settle(self.core, 2_000)
            watch.take()
            if "key" in what:
                assert watch.members == self.members(what["key"])
            else:
                assert watch.counts == self.counts(what["prefix"])

    @property
    def consumed(self) -> set[str]:
        return {queue for _, some in self.attached.values() for queue in some}

    def members(self, key: str) -> dict[str, bool]:
        return {queue: queue in self.consumed for queue, bound in self.bound.items() if key in bound}

    def counts(self, prefix: str) -> dict[str, tuple[int, int]]:
        consumed = self.consumed
        found: dict[str, tuple[int, int]] = {}
        for queue, bound in self.bound.items():
            for key in bound:
                if key.startswith(prefix):
                    count, live = found.get(key, (0, 0))
                    found[key] = count + 1, live + (queue in consumed)
        return found

    def teardown(self) -> None:
        self.all_is_told()
        for _, watch in self.watches:
            watch.leave()
        settle(self.core, 70_000)
        assert self.core.state.interest.members is None
        for session, _ in self.attached.values():
            self.core.dispatcher.close(session)
        self.core.pump()
        assert self.core.dispatcher.shares.attached.used_bytes == 0


TestWatches = Watches.TestCase
TestWatches.settings = settings(max_examples=80, stateful_step_count=40, deadline=None, print_blob=True)


class SlowWatches(Watches):
    """The same if nearly every change waits for its turn, and things go on meanwhile."""

    def __init__(self) -> None:
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(member_line, "CHANGES_PER_STEP_MAX", 1)
        self.patches.setattr(member_line, "PRESENCE_AT_ONCE_MAX", 0)
        self.patches.setattr(watching, "LENGTHS_AT_ONCE_MAX", 0)
        super().__init__()

    def take_in(self) -> None:
        while self.core.node.watching.has_turns:
            self.core.node.watching.turn()

    @rule(turns=st.integers(1, 5))
    def turn(self, turns: int) -> None:
        for _ in range(turns):
            if self.core.node.watching.has_turns:
                self.core.node.watching.turn()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.patches.undo()


TestSlowWatches = SlowWatches.TestCase
TestSlowWatches.settings = settings(TestWatches.settings, max_examples=40)
