"""How much is looked at to find what comes back from those that leave, before a new chunk is given."""

from __future__ import annotations

import pytest

from shoal_slice_node.core.dispatch import growing
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import LEAVING_LOOKS_MAX

from .core_driver import CoreDriver, bind, publish


class LookDriver(CoreDriver):
    """Queues `q0`, `q1`... are bound to `k`, with `consumers` sessions, each of which got one message at a time."""

    def __init__(self, queues: int, consumers: int, messages: int) -> None:
        super().__init__()
        self.queues = [f"q{number}" for number in range(queues)]
        self.declare(self.queues)
        self.change_all(bind(queue, "k") for queue in self.queues)
        self.consumers = self.attached(consumers, 1000)
        for _ in range(messages):
            self.change(publish("k", b"x"))
            self.pump()

    def attached(self, sessions: int, window: int) -> list[Session]:
        some = [self.session(1 << 30) for _ in range(sessions)]
        for session in some:
            for handle, queue in enumerate(self.queues, 1):
                assert self.attach(session, queue, handle, window)
        return some

    def read(self, session: Session) -> list[int]:
        """The offsets that come, once for each handle."""
        self.dispatcher.reads(session)
        self.pump()
        some = self.deliveries(session)
        return [offset for one in some for _ in one.handles for offset in range(one.low, one.to)]

    @property
    def streams(self) -> list[Stream]:
        return [stream for feed in self.dispatcher.feeds.values() for stream in feed.streams.values()]


class Looks:
    """Counts looks at what is out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def counted(attachment: Attachment) -> bool:
            self.count += 1
            return not (attachment._left or attachment.session.closed or attachment.feed.gone)

        monkeypatch.setattr(Attachment, "attached", property(counted))


def test_where_more_is_out_than_consumers_are_the_consumers_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 50 consumers, all that was out was looked at: 22 ms a publish for 200 queues."""
    core = LookDriver(1, LEAVING_LOOKS_MAX + 5, 200)
    for session in core.attached(LEAVING_LOOKS_MAX + 5, 1):
        core.dispatcher.registry.leaving.session_ends(session)
    (stream,) = core.streams
    assert len(stream.out) == 200
    looks = Looks(monkeypatch)
    core.change(publish("k", b"new"))
    assert looks.count == 0 and len(stream.out) == 201


def some_leave(queues: int, consumers: int, messages: int) -> LookDriver:
    """A session of so many queues that it ends in turns, of which none was taken yet."""
    core = LookDriver(queues, consumers, messages)
    core.dispatcher.close(core.consumers[0])
    assert core.dispatcher.registry.leaving and any(not stream.lagging for stream in core.streams)
    return core


def test_looks_at_what_is_out_are_bounded_for_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "LEAVING_LOOKS_PER_STEP", 100)
    core = some_leave(100, 3, 30)
    looks = Looks(monkeypatch)
    core.change(publish("k", b"new"), publish("k", b"newer"))
    assert 0 < looks.count <= 3 * (100 // 30 + 1), "it may find one among three, and what 30 would cost is counted"
    assert all(stream.lagging for stream in core.streams), "what comes back comes first"
    got: list[int] = []
    while new := [offset for session in core.consumers[1:] for offset in core.read(session)]:
        got += new
    assert sorted(got) == sorted([*range(1, 33)] * 100)


def test_each_turn_has_looks_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "LEAVING_LOOKS_PER_STEP", 10)
    monkeypatch.setattr(growing, "GIVEN_AT_ONCE_MAX", 0)
    core = some_leave(100, 3, 30)
    core.change(publish("k", b"new"))
    for _ in range(3):
        looks = Looks(monkeypatch)
        core.dispatcher.growing.turn(20)
        assert 0 < looks.count <= 10 + 30


@pytest.mark.parametrize("looks_max", [0, 1, 100, 1000])
def test_what_comes_back_comes_first_where_looks_run_out(looks_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "LEAVING_LOOKS_PER_STEP", looks_max)
    core = some_leave(60, 2, 6)
    stays = core.consumers[1]
    core.deliveries(stays)
    core.change(publish("k", b"new"))
    got: dict[int, list[int]] = {}
    for one in core.deliveries(stays):
        for handle in one.handles:
            got.setdefault(handle, []).extend(range(one.low, one.to))
    assert len(got) == 60 and all(offsets[-1] == 7 and offsets == sorted(offsets) for offsets in got.values())
