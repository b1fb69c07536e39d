"""Dispatch: windows, streams that come and go, sessions that end at the wrong moment."""

from __future__ import annotations

from shoal_contract.wire import slice_pb2 as wire
from tests.fuzz.small_limits import patched

from .core_driver import CoreDriver, bind, declare, drop, publish, unbind


def test_messages_come_in_order_and_are_given_once() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k"))
    core.attach(session, "q")
    core.change(publish("k", b"a", b"b"), publish("k", b"c"))
    assert core.take(session) == [("k", 1, b"a"), ("k", 2, b"b"), ("k", 3, b"c")]
    assert core.take(session) == []


def test_a_queue_that_catches_up_gets_no_message_before_an_earlier_one() -> None:
    """The later message waits for the session already, for another queue: the late queue may not travel with it."""
    core = CoreDriver()
    session = core.session()
    core.change(declare("in step", "late"), bind("in step", "k"), bind("late", "k"), publish("k", b"a"))
    core.attach(session, "in step", handle=1)
    assert core.take(session) == [("k", 1, b"a")]
    core.change(publish("k", b"b"))
    core.attach(session, "late", handle=2)
    given = [(delivery.low, list(delivery.handles)) for delivery in core.deliveries(session)]
    assert given == [(2, [1]), (1, [2]), (2, [2])]


def test_acks_taken_while_earlier_ones_are_being_journaled_survive_the_end_of_the_binding() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a"), publish("k", b"b"))
    core.attach(session, "q")
    core.take(session)
    core.change(unbind("q", "k"))
    core.ack(session, "k", 1, 2)
    under_way, _ = core.take_acks()
    core.ack(session, "k", 2, 3)
    core.dispatcher.acks.applied(under_way)
    assert core.take_acks()[0].acks, "the second ack is not in the journal yet"


def test_acks_of_a_discarded_binding_say_nothing_of_the_one_after_it() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k", "other"), publish("other", b"x"), publish("k", b"a"), publish("k", b"b"))
    core.change(declare("keeper"), bind("keeper", "k", start=wire.START_EARLIEST))
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "other", 1, 2)
    core.ack(session, "k", 1, 3)
    first, first_lsn = core.take_acks(1)
    core.change(unbind("q", "k", discard=True), bind("q", "k", start=wire.START_EARLIEST))
    second, second_lsn = core.take_acks(1 << 30)
    for batch, lsn in ((first, first_lsn), (second, second_lsn)):
        core.apply_acks(batch, lsn)
    core.take(session)
    core.dispatcher.close(session)
    core.pump()
    later = core.session()
    core.attach(later, "q")
    assert core.take(later) == [("k", 1, b"a"), ("k", 2, b"b")]


def test_a_window_filled_by_a_discarded_key_opens_for_the_others() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "a", "b"))
    core.attach(session, "q", messages=1)
    core.change(publish("a", b"1"))
    assert core.take(session) == [("a", 1, b"1")]
    core.change(publish("b", b"2"))
    assert core.take(session) == []
    core.change(unbind("q", "a", discard=True))
    assert core.take(session) == [("b", 1, b"2")]


def test_an_attach_right_after_a_detach_is_not_left_waiting() -> None:
    core = CoreDriver()
    first, second = core.session(), core.session()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a"))
    core.attach(first, "q")
    core.dispatcher.close(first)
    core.attach(second, "q")
    assert core.take(second) == [("k", 1, b"a")]


def test_what_is_given_back_goes_to_the_new_attachment_and_never_to_the_old_one() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k"))
    core.attach(session, "q", messages=4)
    core.change(publish("k", b"1", b"2"), publish("k", b"3", b"4"))
    assert len(core.take(session)) == 4
    core.ack(session, "k", 1, 2)
    core.attach(session, "q", messages=1)
    assert core.take(session) == [("k", 2, b"2")], "its window is 1"
    core.ack(session, "k", 2, 3)
    assert core.take(session) == [("k", 3, b"3")]
    core.ack(session, "k", 3, 4)
    assert core.take(session) == [("k", 4, b"4")]
    core.ack(session, "k", 3, 5)
    core.settle()
    core.check()
    assert not list(core.tables.log.scan())


def test_what_a_session_asked_for_before_it_ended_is_not_done_after() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a"))
    core.dispatcher.close(session)
    core.attach(session, "q")
    core.attach(session, "unknown", handle=2)
    assert core.pull(session, "q", 10) == []
    core.pump()
    assert not core.dispatcher.dirty and not core.dispatcher.feeds and not core.dispatcher.registry.awaited


def test_a_handle_used_again_gets_nothing_of_its_former_queue() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q", "r"), bind("q", "k"))
    core.attach(session, "q", handle=1)
    core.change(publish("k", b"a"))
    core.attach(session, "r", handle=1)
    assert core.take(session) == [] and session.under_way_bytes == 0


def test_a_queue_bound_again_from_below_may_be_unbound_in_the_same_frame() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b"))
    core.attach(session, "q")
    core.take(session)
    core.change(unbind("q", "k"), bind("q", "k", start=wire.START_EARLIEST), unbind("q", "k"))
    core.ack(session, "k", 1, 3)
    core.settle()
    core.check()


def test_a_queue_bound_again_from_below_may_be_dropped_in_the_same_frame() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b"))
    core.attach(session, "q")
    core.take(session)
    core.change(unbind("q", "k"), bind("q", "k", start=wire.START_EARLIEST), drop("q"))
    assert not core.dispatcher.feeds
    core.settle()
    core.check()


def test_acks_below_the_new_start_outlive_a_bind_from_there() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b", b"c", b"d"))
    core.attach(session, "q")
    core.take(session)
    core.change(unbind("q", "k"))
    core.ack(session, "k", 1, 3)
    core.change(bind("q", "k", start=wire.START_OFFSET, value=4))
    assert core.take(session) == [], "what is out stays out"
    core.flush()
    core.dispatcher.close(session)
    again = core.session()
    core.attach(again, "q")
    assert core.take(again) == [("k", 3, b"c"), ("k", 4, b"d")]


def test_bound_again_from_below_gives_what_was_acked_and_leaves_what_is_out() -> None:
    core = CoreDriver()
    session, other = core.session(), core.session()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b", b"c"))
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "k", 1, 3)
    core.change(unbind("q", "k"), publish("k", b"away"), bind("q", "k", start=wire.START_EARLIEST))
    core.attach(other, "q")
    given = core.take(session) + core.take(other)
    assert ("k", 3, b"c") not in given, "one session at a time has it"
    core.dispatcher.close(session)
    assert ("k", 3, b"c") in core.take(other)
    core.check()


def test_acks_out_of_order_below_a_new_start_are_taken_back() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q", "keeper"), bind("q", "k"), bind("keeper", "k"), publish("k", *[b"x"] * 5))
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "k", 2, 4)
    core.ack(session, "k", 1, 2)
    core.change(unbind("q", "k"), bind("q", "k", start=wire.START_EARLIEST))
    assert core.take(session) == [("k", 1, b"x"), ("k", 2, b"x"), ("k", 3, b"x")]
    core.flush()
    core.dispatcher.close(session)
    again = core.session()
    core.attach(again, "q")
    assert [offset for _, offset, _ in core.take(again)] == [1, 2, 3, 4, 5]
    core.check()


def test_an_ack_of_an_empty_range_changes_nothing() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b", b"c", b"d"))
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "k", 3, 2)
    core.ack(session, "k", 3, 3)
    core.dispatcher.close(session)
    again = core.session()
    core.attach(again, "q")
    assert [offset for _, offset, _ in core.take(again)] == [1, 2, 3, 4]


def test_sessions_that_compete_for_a_queue_take_turns() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    sessions = [core.session() for _ in range(3)]
    for session in sessions:
        core.attach(session, "q")
    for number in range(6):
        core.change(publish("k", b"%d" % number))
    assert [[message[1] for message in core.take(session)] for session in sessions] == [[1, 4], [2, 5], [3, 6]]


def test_chunks_that_are_let_go_as_too_much_waits_are_read_from_the_log() -> None:
    with patched({"GIVEN_AT_ONCE_MAX": 0, "GROWTHS_WAITING_BYTES_MAX": 0}):
        core = CoreDriver()
        core.change(declare("q", "r"), bind("q", "k"), bind("r", "k"))
        session = core.session()
        core.attach(session, "q", handle=1)
        core.attach(session, "r", handle=2)
        core.pump()
        core.change(publish("k", b"a"), publish("k", b"b"))
        given = [(delivery.low, sorted(delivery.handles)) for delivery in core.deliveries(session)]
        assert given == [(1, [1, 2]), (2, [1, 2])]


def test_keys_of_one_queue_take_turns_when_they_lag() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "a", "b"), publish("a", b"1"), publish("a", b"2"), publish("b", b"3"))
    core.attach(session, "q", messages=1)
    first = core.take(session)
    core.ack(session, "a", 1, 2)
    assert [key for key, _, _ in first + core.take(session)] == ["a", "b"]


def test_a_queue_whose_acks_went_with_its_binding_leaves_no_trace() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b"))
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "k", 1, 2)
    core.change(unbind("q", "k", discard=True))
    core.dispatcher.close(session)
    core.flush()
    assert not core.dispatcher.feeds


def test_what_was_acked_out_of_order_is_not_given_again_when_the_cursor_jumps_over_it() -> None:
    core = CoreDriver()
    session, again = core.session(), core.session()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b", b"c"))
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "k", 2, 3)
    core.dispatcher.close(session)
    core.flush()
    core.attach(again, "q", messages=1)
    assert [offset for _, offset, _ in core.take(again)] == [1]
    core.ack(again, "k", 1, 2)
    assert [offset for _, offset, _ in core.take(again)] == [3]
