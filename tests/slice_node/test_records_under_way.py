"""What ends while a RETRY record about it is under way, and what a record finds done already: no record comes twice."""

from __future__ import annotations

import pytest

from shoal_contract.chunk import parse_chunk
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire

from .core_driver import acks, bind, configure, publish, unbind
from .dead_letters_driver import DeadLettersDriver, foreign, with_graveyard
from .nacks_driver import attached
from .retry_steps import beside_a_record, retry_records, three


@pytest.fixture
def core() -> DeadLettersDriver:
    return with_graveyard()


LAST_3 = KeyOptions(capacity_messages=3, policy="drop_oldest")
TEN_MINUTES_MS = 600_000


def letters(core: DeadLettersDriver) -> list[int]:
    """The offsets of the letters that are made now; each is where it belongs at once."""
    lines = core.dispatcher.registry.returns.letters
    found = []
    while (letter := lines.take(core.now_ms)) is not None:
        found.append(int(parse_chunk(letter.chunk).headers[0].fields["shoal-offset"]))
        lines.sent(letter)
    return found


def test_parts_of_what_is_counted_wait_for_their_delay_and_are_not_counted_again(core: DeadLettersDriver) -> None:
    foreign(core)
    session = three(core)
    core.nack(session, 1, 4, TEN_MINUTES_MS)
    beside_a_record(core, acks(("q", "k", 2, 3)))
    for _ in range(5):
        core.now_ms += 20
        core.maintain()
    assert (retry_records(core), letters(core), core.times(session)) == (1, [], [])
    core.now_ms += TEN_MINUTES_MS
    core.settle()
    assert core.times(session) == [(1, 1), (3, 1)]
    core.check()


def test_parts_of_what_is_given_no_more_become_one_letter_each(core: DeadLettersDriver) -> None:
    foreign(core)
    session = three(core)
    core.again(session, 0, 9)
    assert core.times(session) == [(1, 1), (2, 1), (3, 1)]
    core.nack(session, 1, 4)
    beside_a_record(core, acks(("q", "k", 2, 3)))
    core.maintain()
    assert letters(core) == [1, 3]
    core.settle()
    assert core.dispatcher.registry.returns.letters.unsent == core.dispatcher.shares.rests.stretches == 0
    core.check()


@pytest.mark.parametrize("change", [acks(("q", "k", 3, 4)), unbind("q", "k")])
def test_a_record_about_what_the_key_dropped_comes_once(core: DeadLettersDriver, change: wire.Step) -> None:
    """The change raises the cursor in the tables, and no consumer is there to pass over what is gone."""
    core.change(configure("k", LAST_3), *[publish("k", b"x")] * 3)
    session = attached(core)
    assert core.times(session) == [(1, 0), (2, 0), (3, 0)]
    core.dispatcher.close(session)
    core.pump()
    core.change(publish("k", b"d"), change)
    core.settle()
    records = retry_records(core)
    assert records <= 2 and not core.dispatcher.feeds and not core.dispatcher.shares.rests.stretches
    core.settle()
    assert retry_records(core) == records
    core.check()


@pytest.mark.parametrize("ttl_ms", [0, 300])
def test_a_letter_whose_message_is_gone_ends(ttl_ms: int) -> None:
    core = DeadLettersDriver()
    core.bounded("q", most=1)
    core.change(bind("q", "k"), configure("k", KeyOptions() if ttl_ms else LAST_3))
    foreign(core)
    session = attached(core)
    for _ in range(20):
        core.change(publish("k", b"x", ttl_ms=ttl_ms))
        (offset,) = [offset for offset, _ in core.times(session)]
        core.nack(session, offset, offset + 1)
        core.maintain()
    core.settle()
    letters(core)
    core.settle()
    assert core.dispatcher.registry.returns.letters.unsent == core.dispatcher.shares.rests.stretches == 0
    core.dispatcher.close(session)
    core.pump()
    core.settle()
    assert not core.dispatcher.feeds
    core.check()
