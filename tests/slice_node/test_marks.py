"""Marks of what queues were given before they were forgotten: their number is bounded, and the oldest goes first."""

from __future__ import annotations

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import marks as subject
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.turns import finish

from .core_driver import CoreDriver, bind, declare, publish, unbind


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


@pytest.mark.parametrize("how", ["there", "away", "rebound"])
def test_what_a_binding_made_anew_brings_is_given_for_the_first_time(how: str) -> None:
    """A mark of the one before told it as a redelivery. `away`: nobody consumed the queue at the bind. `rebound`: what
    it had unread was left to it."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"1", b"2"))
    first, second = core.session(), core.session()
    for session in (first, second):
        core.attach(session, "q")
    (had,) = core.deliveries(first)
    core.dispatcher.close(first)
    core.pump()
    (again,) = core.deliveries(second)
    assert (had.redelivered, again.redelivered) == (0, 1)
    if how == "rebound":
        core.ack(second, "k", 1, 3)
        core.flush()
        core.change(publish("k", b"3"))
        core.dispatcher.close(second)
    elif how == "away":
        core.dispatcher.close(second)
    core.pump()
    core.change(unbind("q", "k", discard=how != "rebound"), bind("q", "k", start=wire.START_EARLIEST))
    if how != "there":
        second = core.session()
        core.attach(second, "q")
    core.pump()
    anew = core.deliveries(second)
    assert [(one.low, one.to) for one in anew] == [(1, 3)] + [(3, 4)] * (how == "rebound")
    assert not any(one.redelivered for one in anew if one.low < 3)
    assert not core.dispatcher.registry.marks


def test_marks_know_their_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "DELIVERED_MARKS_MAX", 2)
    core = CoreDriver()
    core.change(declare("a", "b"), bind("a", "k", "l"), bind("b", "k"))
    marks = subject.Marks()
    streams = []
    for queue in "ab":
        session = core.session()
        core.attach(session, queue)
        queue_id = core.tables.queue_by_name.get(queue.encode())
        assert queue_id is not None
        streams += list(core.dispatcher.feeds[queue_id].streams.values())
    for stream in streams:
        marks.mark(stream)
    first, second, third = streams
    assert dict(marks.queues) == {second.feed.queue_id: 1, third.feed.queue_id: 1}
    marks.forget(second.feed.queue_id, second.key_id)
    marks.forget(first.feed.queue_id, first.key_id)
    assert dict(marks.queues) == {third.feed.queue_id: 1}


@pytest.mark.parametrize(("last", "redelivered"), [(0, [1]), (1, [1, 0]), (2, [0])])
def test_what_is_left_of_a_binding_that_ended_was_given_before_though_its_queue_is_bound_again(
    last: int, redelivered: list[int]
) -> None:
    """All of it was told as given for the first time."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"1", b"2"))
    session = core.session()
    core.attach(session, "q")
    core.take(session)
    core.dispatcher.close(session)
    core.pump()
    assert not core.dispatcher.feeds
    core.change(unbind("q", "k"), bind("q", "k", start=wire.START_LAST, value=last))
    session = core.session()
    core.attach(session, "q")
    assert [one.redelivered for one in core.deliveries(session)] == redelivered


@pytest.mark.parametrize("epoch", [1, 9])
def test_an_attach_is_answered_with_the_epoch_in_which_the_slice_is_led(epoch: int) -> None:
    """By it a client tells what a new binding brings from what it had before: without it, this was acked unseen."""
    core = CoreDriver()
    core.change(declare("q"))
    core.node = Node(core.engine, epoch, core.now_ms, (), None)
    work = requests.attach(core.node, core.session(), wire.Attach(queues=[b"q"], handles=[1]))()
    assert finish(work).attached.epoch == epoch
