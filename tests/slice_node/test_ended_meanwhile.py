"""What ends between two events of a record, within a flush, within a pull, or before a queue is here."""

from __future__ import annotations

import pytest

from shoal_contract.options import KeyOptions
from shoal_slice_node.core.dispatch.served import silent_streams

from .core_driver import acks, bind, configure, declare, publish, unbind
from .dead_letters_driver import DeadLettersDriver, with_graveyard
from .nacks_driver import NacksDriver
from .retry_steps import beside_a_record, retry_records, three


@pytest.fixture
def core() -> DeadLettersDriver:
    return with_graveyard()


@pytest.mark.parametrize("acked", [1, 3])
def test_a_record_about_a_queue_of_which_its_first_event_ends_the_last_rest(core, acked: int) -> None:  # type: ignore[no-untyped-def]
    """Two stretches in one RETRY record, and a change before it acks one of them; nothing consumes the queue. The node
    ended: the second event was about a queue that was forgotten."""
    session = three(core)
    core.ack(session, "k", 2, 3)
    core.flush()
    core.dispatcher.close(session)
    while core.dispatcher.turn():
        pass
    beside_a_record(core, acks(("q", "k", acked, acked + 1)))
    assert retry_records(core) == 1
    core.check()


def test_acks_that_a_flush_has_begun_with_are_kept_though_a_change_acks_the_rest_of_an_ended_binding() -> None:
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k"))
    core.change(*[publish("k", b"x")] * 3)
    session = core.session()
    assert core.attach(session, "q")
    core.pump()
    assert len(core.take(session)) == 3
    core.change(unbind("q", "k"))
    core.ack(session, "k", 1, 2)
    core.dispatcher.acks.begin_flush()
    core.change(acks(("q", "k", 2, 4)))
    batch, lsn = core.take_acks()
    assert [(one.first, one.to) for one in batch.acks] == [(1, 4)]
    core.apply_acks(batch, lsn)
    core.dispatcher.close(session)
    core.pump()
    again = core.session()
    core.attach(again, "q")
    core.pump()
    assert not core.deliveries(again)
    core.check()


def test_a_window_that_opens_during_a_pull_is_seen() -> None:
    core = NacksDriver()
    last_4 = KeyOptions(capacity_messages=4, policy="drop_oldest")
    core.change(declare("q"), bind("q", "k"), configure("k", last_4))
    session = core.session()
    assert core.attach(session, "q", messages=3)
    core.pump()
    for _ in range(3):
        core.change(publish("k", b"x"))
    assert len(core.take(session)) == 3
    for _ in range(4):
        core.change(publish("k", b"y"))  # Messages 1 to 3, which the session has, are gone.
    core.pump()
    assert [one.low for one in core.pull(core.session(), "q", 1)] == [4]
    while core.dispatcher.turn():
        pass
    name = core.tables.queue_by_name.get(b"q")
    assert name is not None and not list(silent_streams(core.dispatcher, [core.dispatcher.feeds[name]]))
    assert not core.deliveries(session), "it has messages 1 to 3 still, though they are gone"
    core.ack(session, "k", 1, 4)
    core.settle()
    assert [one.low for one in core.deliveries(session)] == [5, 6, 7]


def test_a_handle_that_was_stopped_before_its_queue_was_here_gets_nothing() -> None:
    core = NacksDriver()
    session = core.session()
    core.attach(session, "q")
    (handle,) = session.awaited
    core.dispatcher.stop(session, handle)
    core.change(declare("q"), bind("q", "k"))
    core.change(publish("k", b"x"))
    core.pump()
    assert handle in session.attachments and not session.waiting
    assert len(core.pull(core.session(), "q", 1)) == 1
    core.check()
