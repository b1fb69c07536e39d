"""Marks of what queues were given before they were forgotten: their number is bounded, and the oldest goes first."""

from __future__ import annotations

import pytest

from shoal_slice_node.core.dispatch import marks as subject
from shoal_slice_node.core.dispatch.streams import Stream

from .core_driver import CoreDriver, bind, declare, publish


def stream_of(core: CoreDriver, queue: str) -> Stream:
    """The only stream of a queue that is attached, which is level with its key."""
    session = core.session()
    core.attach(session, queue)
    core.take(session)
    queue_id = core.tables.queue_by_name.get(queue.encode())
    assert queue_id is not None
    (stream,) = core.dispatcher.feeds[queue_id].streams.values()
    return stream


def test_the_oldest_mark_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "DELIVERED_MARKS_MAX", 2)
    core = CoreDriver()
    core.change(declare("a", "b", "c"), *[bind(queue, "k") for queue in "abc"], publish("k", b"1", b"2"))
    a, b, c = (stream_of(core, queue) for queue in "abc")
    marks = subject.Marks()
    assert not marks
    for stream in (a, b, a, c):  # What is marked again is the newest.
        marks.mark(stream)
    assert [marks.marked(stream) for stream in (a, b, c)] == [3, 0, 3]
