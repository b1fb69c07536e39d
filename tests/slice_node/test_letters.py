"""Dead letters for keys of other slices: kept until their copies are there, and sent by the same producer each time."""

from __future__ import annotations

import pytest

from shoal_contract.chunk import parse_chunk
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import Kind, encode_ownership

from .core_driver import PARTITIONS, acks, bind, configure, declare, drop, publish, purge
from .dead_letters_driver import DeadLettersDriver, foreign, with_graveyard
from .nacks_driver import attached


@pytest.fixture
def core() -> DeadLettersDriver:
    return with_graveyard()


def test_a_dead_letter_for_another_slice_is_kept_until_its_copy_is_there(core: DeadLettersDriver) -> None:
    foreign(core)
    session = attached(core)
    core.change(publish("k", b"a", b"b"))
    for _ in range(2):
        core.take(session)
        core.again(session, 0, 9)
    core.maintain()
    letters = core.dispatcher.letters
    assert letters.unsent == 2
    one, other = letters.take(core.now_ms), letters.take(core.now_ms)
    assert one is not None and other is not None and letters.take(core.now_ms) is None
    assert one.key == b"dead" and one.producer != other.producer and len(one.producer) == 16
    copy = parse_chunk(one.chunk)
    assert copy.bodies == [b"a"] and copy.headers[0].fields["shoal-offset"] == b"1"
    letters.not_sent(one, core.now_ms)
    assert letters.unsent == 2 and core.state.counters.dead_nacked == 0, "their messages are not done yet"
    assert core.times(session) == [] and core.counts() == [(1, 3, 2)]
    core.restart()
    session = attached(core)
    assert core.times(session) == [], "it is not given again after a restart"
    core.maintain()
    letters = core.dispatcher.letters
    again = letters.take(core.now_ms)
    assert again is not None and (again.key, again.producer, again.chunk[:3]) == (b"dead", one.producer, one.chunk[:3])
    letters.sent(again)
    core.maintain()
    assert core.counts() == [(2, 3, 2)]
    last = letters.take(core.now_ms)
    assert last is not None and last.producer == other.producer
    letters.sent(last)
    core.settle()
    assert core.counts() == [] and not letters.ready(core.now_ms)
    assert letters.unsent == 0 and core.state.counters.dead_left + core.state.counters.dead_nacked == 2
    core.dispatcher.close(session)
    core.settle()
    assert not core.dispatcher.feeds and not list(core.tables.log.scan())
    core.check()


def test_a_queue_with_letters_and_no_session_is_not_live(core: DeadLettersDriver) -> None:
    foreign(core)
    session = attached(core)
    core.change(publish("k", b"a"))
    for _ in range(2):
        core.take(session)
        core.again(session, 0, 9)
    core.dispatcher.close(session)
    core.maintain()
    assert core.dispatcher.letters.ready(core.now_ms)
    assert list(core.live(publish("k", b"now", live=True)).consumed) == [0]
    again = attached(core)
    assert list(core.live(publish("k", b"now", live=True)).consumed) == [1]
    core.dispatcher.close(again)


@pytest.mark.parametrize("ends", ["purge", "drop"])
def test_a_letter_whose_message_is_gone_is_not_sent(core: DeadLettersDriver, ends: str) -> None:
    foreign(core)
    session = attached(core)
    core.change(publish("k", b"a"))
    for _ in range(2):
        core.take(session)
        core.again(session, 0, 9)
    core.maintain()
    letters = core.dispatcher.letters
    assert letters.ready(core.now_ms)
    core.change(purge("q") if ends == "purge" else drop("q"))
    assert letters.take(core.now_ms) is None
    core.settle()
    core.check()


def test_a_change_may_ack_what_waits_for_a_record_or_for_its_copy(core: DeadLettersDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"a", b"b", b"c"))
    core.take(session)
    core.nack(session, 1, 4)
    core.change(acks(("q", "k", 2, 3)))  # Before the record of the nack.
    core.maintain()
    assert core.times(session) == [(1, 1), (3, 1)] and core.counts() == [(1, 2, 1), (3, 4, 1)]
    foreign(core)
    core.again(session, 1, 4)
    core.maintain()
    letters = core.dispatcher.letters
    one = letters.take(core.now_ms)
    assert one is not None and one.resting.first == 1
    core.change(acks(("q", "k", 1, 2), ("q", "k", 3, 4)))
    letters.sent(one)
    assert letters.take(core.now_ms) is None
    core.settle()
    assert core.counts() == [] and core.times(session) == []
    core.dispatcher.close(session)
    core.settle()
    assert not core.dispatcher.feeds and not list(core.tables.log.scan())
    core.check()


def test_of_a_change_and_a_record_the_first_decides(core: DeadLettersDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"a", b"b", b"c"))
    core.take(session)
    core.again(session, 1, 4)
    core.take(session)
    core.nack(session, 1, 4)
    core.node.tick(core.now_ms, core.wall_ms)  # The record is decided, and comes before the change.
    assert core.change(acks(("q", "k", 1, 2))).steps[0].refusals
    core.settle()
    assert [headers["shoal-offset"] for _, headers in core.copies()] == [b"1", b"2", b"3"]
    core.dispatcher.close(session)
    core.settle()
    assert not core.dispatcher.feeds and core.counts() == []
    core.check()


def producer_of_first_letter(later_ms: int) -> bytes:
    """The producer of the first letter of a slice that begins without data, so much later."""
    core = DeadLettersDriver()
    core.wall_ahead_ms += later_ms
    core.bounded("q", most=1)
    core.change(bind("q", "k"))
    foreign(core)
    session = attached(core)
    core.change(publish("k", b"a"))
    core.take(session)
    core.again(session, 0, 9)
    core.maintain()
    letter = core.dispatcher.letters.take(core.now_ms)
    assert letter is not None and letter.resting.first == 1
    return letter.producer


def test_after_a_start_without_data_a_letter_is_no_repeat_of_an_earlier_one() -> None:
    """Ids and offsets begin anew, and the other slice remembers the letters of the day before."""
    assert producer_of_first_letter(0) == producer_of_first_letter(0)
    assert producer_of_first_letter(0) != producer_of_first_letter(60_000)


def test_a_letter_has_the_same_producer_on_a_slice_where_queue_and_key_have_other_ids() -> None:
    letters = []
    for others in ((), ("other",)):
        core = DeadLettersDriver()
        for other in others:
            core.change(declare(other), bind(other, f"key-{other}"))
        options = QueueOptions(max_deliveries=1, dead_letter="dead").to_wire()
        declares = wire.Declares(queues=[b"q"], options=options, incarnations=[7])
        elsewhere = [int.from_bytes(core.state.full_name(name)[:2], "big") for name in (b"dead", b"@q")]
        core.record(Kind.OWNERSHIP, encode_ownership(2, bytes(one not in elsewhere for one in range(PARTITIONS))))
        core.change(wire.Step(declares=declares), bind("q", "k"))
        session = attached(core)
        core.change(publish("k", b"a"))
        core.take(session)
        core.again(session, 0, 9)
        core.maintain()
        letter = core.dispatcher.letters.take(core.now_ms)
        assert letter is not None
        letters.append(letter)
    one, other_one = letters
    assert one.stream.key_id != other_one.stream.key_id
    assert one.stream.feed.queue_id != other_one.stream.feed.queue_id
    assert one.producer == other_one.producer


def test_a_letter_whose_message_is_gone_is_over(core: DeadLettersDriver) -> None:
    """It rested for ever, and its queue stayed in memory with it."""
    foreign(core)
    session = attached(core)
    core.change(publish("k", b"short", ttl_ms=5_000))
    for _ in range(2):
        core.take(session)
        core.again(session, 0, 9)
    core.dispatcher.close(session)
    core.maintain()
    letters = core.dispatcher.registry.returns.letters
    assert letters.unsent == 1
    core.now_ms += 6_000
    core.maintain()
    core.check()
    assert not list(core.tables.log.scan()) and letters.take(core.now_ms) is None
    core.settle()
    assert not core.dispatcher.feeds and letters.unsent == 0
    core.check()


def test_a_letter_expires_by_the_clock_that_deliveries_expire_by(core: DeadLettersDriver) -> None:
    """It was compared with the time of the last record, which may be long ago."""
    foreign(core)
    session = attached(core)
    core.change(publish("k", b"short", ttl_ms=5_000))
    for _ in range(2):
        core.take(session)
        core.again(session, 0, 9)
    core.maintain()
    letters = core.dispatcher.registry.returns.letters
    assert letters.unsent == 1
    core.now_ms += 6_000
    core.dispatcher.tell_time(core.wall_ms)
    assert letters.take(core.now_ms) is None


def test_what_rests_and_is_gone_is_decided_once(core: DeadLettersDriver) -> None:
    """An ack in a change moved the cursor in the tables above it, and a record was made for it at each tick."""
    core.change(configure("k", KeyOptions(capacity_messages=2, policy="drop_oldest")))
    session = attached(core)
    core.change(publish("k", b"a"))
    core.take(session)
    core.nack(session, 0, 9)
    core.dispatcher.close(session)
    core.change(publish("k", b"b"), publish("k", b"c"), acks(("q", "k", 2, 3)))
    core.settle()
    core.check()
