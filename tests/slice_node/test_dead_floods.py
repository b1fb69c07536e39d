"""Very many dead messages: what they cost is bounded in each step, and others need not wait for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_contract.chunk import encode_chunk, read_stored_chunk
from shoal_contract.errors import ResourceExhausted
from shoal_contract.limits import CHUNK_MESSAGES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_slice_node.core.apply import log_rows
from shoal_slice_node.core.apply.records import Kind, decode_retries
from shoal_slice_node.core.dispatch import deciding, shares
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.stretches import Resting
from shoal_slice_node.core.limits import RESTS_PER_QUEUE_FLOOR

from .core_driver import bind, declare, drop, publish
from .dead_letters_driver import DeadLettersDriver, foreign
from .nacks_driver import attached

QUEUES = 40


@pytest.fixture
def core() -> DeadLettersDriver:
    core = DeadLettersDriver()
    core.change(declare("graveyard"), bind("graveyard", "dead"))
    return core


def flooded(core: DeadLettersDriver, messages: int = CHUNK_MESSAGES_MAX, first: bytes = b"") -> Session:
    """A session that has chunks of many messages, for each of many queues."""
    for number in range(QUEUES):
        core.bounded(f"flooded-{number}", most=1)
        core.change(bind(f"flooded-{number}", "k"))
    core.change(publish("k", first, *[b""] * (messages - 1)))
    session = core.session(window_bytes=1 << 30)
    for number in range(QUEUES):
        assert core.attach(session, f"flooded-{number}", number + 1, 1_000_000, 1 << 40)
    core.deliveries(session)
    return session


def flood(core: DeadLettersDriver, messages: int = CHUNK_MESSAGES_MAX) -> None:
    """The session has ended, and all of them are dead."""
    core.dispatcher.close(flooded(core, messages))
    core.pump()


def resting(core: DeadLettersDriver) -> Iterator[Resting]:
    for feed in core.dispatcher.feeds.values():
        for stream in feed.streams.values():
            yield from stream.resting or ()


def test_letters_for_other_slices_are_made_one_by_one(core: DeadLettersDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[bytes] = []

    def read(chunk: bytes) -> Chunk:
        opened.append(chunk)
        return read_stored_chunk(chunk)

    monkeypatch.setattr(log_rows, "read_stored_chunk", read)
    foreign(core)
    flood(core)
    for _ in range(3):
        core.maintain()
    letters = core.dispatcher.letters
    assert letters.unsent == QUEUES * CHUNK_MESSAGES_MAX
    assert len(list(resting(core))) == QUEUES
    taken = []
    for _ in range(200):
        letter = letters.take(core.now_ms)
        assert letter is not None
        taken.append((letter.stream.feed.name, letter.resting.first))
        letters.sent(letter)
        core.maintain()
    assert len(opened) <= 2, "a chunk is decoded once for all of its letters"
    assert len(set(taken)) == 200 and len({name for name, _ in taken}) == 7, "stretches have turns"
    assert letters.unsent == QUEUES * CHUNK_MESSAGES_MAX - 200
    assert len(list(resting(core))) == QUEUES
    core.check()


def test_deciding_looks_at_so_many_stretches_in_a_step(
    core: DeadLettersDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "RETRY_LOOKS_MAX", 10)
    foreign(core)
    flood(core, messages=2)
    letters = core.dispatcher.letters
    found = []
    for _ in range(30):
        before = letters.unsent
        core.maintain()
        found.append(letters.unsent - before)
    assert max(found) == 20 and sum(found) == 2 * QUEUES


def test_a_nack_does_not_wait_for_the_copies_of_others(core: DeadLettersDriver) -> None:
    core.bounded("honest", most=5)
    core.change(bind("honest", "own"), publish("own", b"x"))
    flood(core)
    core.maintain()
    session = attached(core, "honest")
    assert core.times(session) == [(1, 0)]
    core.again(session, 1, 2, key="own")
    core.maintain()
    assert core.times(session) == [(1, 1)]
    core.check()


def test_a_dead_letter_waits_for_one_turn_of_another_session(core: DeadLettersDriver) -> None:
    core.bounded("honest", most=1)
    core.change(bind("honest", "own"), publish("own", b"mine"))
    flood(core)
    core.maintain()
    session = attached(core, "honest")
    core.take(session)
    core.nack(session, 1, 2, key="own")
    key = core.state.full_name(b"own")
    for _ in range(2):
        core.maintain()
    owner = core.tables.queue_by_name.get(b"honest")
    asked = [
        retry for record in core.records if record.kind == Kind.RETRY for retry in decode_retries(record.payload)[1]
    ]
    assert owner in [retry.queue_id for retry in asked] and core.tables.key.get(key) is not None
    core.check()


def test_a_record_copies_as_many_bytes_as_it_may(core: DeadLettersDriver) -> None:
    """Each chunk has one large message, and its others are empty: the mean says nothing."""
    session = flooded(core, 1000, bytes(300_000))
    for handle in range(1, QUEUES + 1):
        core.nack(session, 1, 2, handle=handle)
    before, largest = core.state.kept.body_bytes, 0
    for _ in range(QUEUES):
        core.maintain()
        now = core.state.kept.body_bytes
        largest, before = max(largest, now - before), now
    assert largest == 900_000
    assert sum(1 for record in core.records if record.kind == Kind.RETRY) == -(-QUEUES // 3)


def test_one_queue_alone_has_all_of_a_record(core: DeadLettersDriver) -> None:
    core.bounded("alone", most=1)
    chunk = encode_chunk([b"x"] * 100)
    core.change(bind("alone", "k"), wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[chunk])))
    session = attached(core, "alone")
    core.take(session)
    core.nack(session, 1, 101)
    core.maintain()
    core.maintain()
    assert len(core.copies()) == 100


@pytest.mark.parametrize("most", [0, 1_000_000])
def test_delays_of_one_session_leave_room_for_others_when_it_is_gone(
    core: DeadLettersDriver, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """With a bound for deliveries, and without."""
    monkeypatch.setattr(shares, "RESTING_MAX", 400)
    core.change(declare("honest"), bind("honest", "own"), publish("own", *[b"x"] * 40))
    for number in range(QUEUES):
        core.bounded(f"greedy-{number}", most=most, dead_letter="dead" if most else "")
        core.change(bind(f"greedy-{number}", "k"))
    core.change(publish("k", *[b""] * 100))
    refused: list[str] = []
    for _ in range(5):  # Each session is gone when the next one comes.
        session = core.session(window_bytes=1 << 30)
        for number in range(QUEUES):
            assert core.attach(session, f"greedy-{number}", number + 1, 1_000_000)
        core.deliveries(session)
        for handle in range(1, QUEUES + 1):
            for offset in range(1, 100, 2):
                try:
                    core.nack(session, offset, offset + 1, delay_ms=86_400_000, handle=handle)
                except ResourceExhausted as error:
                    refused.append(error.subject)
                    break
        core.dispatcher.close(session)
        core.wait(300)
    rests = core.dispatcher.shares.rests
    assert len(list(resting(core))) == rests.stretches <= 400 + RESTS_PER_QUEUE_FLOOR * QUEUES, (
        "what waits for a record rests, too"
    )
    assert {"resting messages", "resting messages of the session"} & set(refused)
    assert any(subject.startswith("resting messages of queue greedy-") for subject in refused)
    mine = attached(core, "honest")
    assert len(core.times(mine)) == 40
    for offset in range(1, 16, 2):
        core.nack(mine, offset, offset + 1, delay_ms=1000, key="own")
    core.wait(1500)
    assert [offset for offset, _ in core.times(mine)] == list(range(1, 16, 2))
    for number in range(QUEUES):
        core.change(drop(f"greedy-{number}"))
    core.settle()
    assert (rests.stretches, rests.queues, rests.sessions) == (0, 0, 0)
