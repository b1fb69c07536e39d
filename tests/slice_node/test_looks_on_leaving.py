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


def test_looks_at_what_is_out_are_bounded_for_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "LEAVING_LOOKS_PER_STEP", 100)
    core = LookDriver(10, 3, 30)
    core.dispatcher.close(core.consumers[0])
    looks = Looks(monkeypatch)
    core.change(publish("k", b"new"), publish("k", b"newer"))
    assert looks.count <= 100 + 30
    assert sum(stream.lagging for stream in core.streams) == 10, "what comes back comes first"
    got: list[int] = []
    while new := [offset for session in core.consumers[1:] for offset in core.read(session)]:
        got += new
    assert sorted(got) == sorted([*range(1, 33)] * 10)
