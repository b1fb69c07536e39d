"""No consumer has more unacked than its window, however large the chunks are: they come in parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from shoal_contract.chunk import cut_chunk, encode_chunk, read_stored_chunk
from shoal_contract.limits import CHUNK_MESSAGES_MAX
from shoal_contract.options import QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_slice_node.core.apply import log_rows
from shoal_slice_node.core.apply.log_rows import StoredChunk
from shoal_slice_node.core.dispatch.acks_in_flight import NackTerms
from shoal_slice_node.core.dispatch.recent_chunks import OpenedChunks
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import (
    CUT_SHARE,
    OPENED_CHUNK_BYTES,
    OPENED_CHUNKS_BYTES_MAX,
    OPENED_ROW_TIMES,
    PUMP_TURN_ROWS,
)
from shoal_slice_node.core.rows.log_row import encode_log

from .core_driver import CoreDriver, acks, bind, declare, publish

MESSAGES = 20
BODIES = [b"%02d" % number for number in range(MESSAGES)]
ALL = list(range(1, MESSAGES + 1))
OPTIONS = {
    "plain": QueueOptions(),
    "counted": QueueOptions(max_deliveries=3),
    "timed": QueueOptions(ack_timeout_ms=1_000),
}


def declared(options: QueueOptions) -> wire.Step:
    return wire.Step(declares=wire.Declares(queues=[b"q"], options=options.to_wire()))


def bound(options: QueueOptions = OPTIONS["plain"]) -> CoreDriver:
    core = CoreDriver()
    core.change(declared(options), bind("q", "k"))
    return core


def consumer(core: CoreDriver, messages: int, size: int = 1 << 20) -> Session:
    session = core.session()
    core.attach(session, "q", 1, messages, size)
    return session


def offsets(core: CoreDriver, session: Session) -> list[int]:
    return [offset for _, offset, _ in core.take(session)]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("before", [False, True], ids=["published later", "published before"])
@pytest.mark.parametrize("window", [1, 2, 7, 19, 20, 21])
def test_a_chunk_comes_in_parts_as_acks_make_room(window: int, before: bool, options: QueueOptions) -> None:
    core = bound(options)
    if before:
        core.change(publish("k", *BODIES))
    session = consumer(core, window)
    if not before:
        core.change(publish("k", *BODIES))
    came = core.take(session)
    assert len(came) == min(window, MESSAGES)
    for done in ALL:
        core.ack(session, "k", done, done + 1)
        new = core.take(session)
        assert len(new) == (len(came) < MESSAGES), "each ack brings one"
        came += new
    assert came == [("k", offset, BODIES[offset - 1]) for offset in ALL]
    core.flush()
    core.check()
    assert not session.attachments[1].messages and not session.owed


@pytest.mark.parametrize("window", [1, 2, 7])
def test_acks_out_of_order_make_room_too(window: int) -> None:
    core = bound()
    session = consumer(core, window)
    core.change(publish("k", *BODIES), publish("k", *BODIES))
    came, held = 0, offsets(core, session)
    while held:
        assert len(held) <= window
        came += 1
        done = held.pop(-1 if came % 2 else 0)
        core.ack(session, "k", done, done + 1)
        held += offsets(core, session)
    assert came == 2 * MESSAGES
    core.flush()
    core.check()


def test_consumers_share_a_chunk_by_their_windows() -> None:
    core = bound()
    sessions = [consumer(core, window) for window in (1, 1, 2, 7)]
    core.change(publish("k", *BODIES))
    came = [offsets(core, session) for session in sessions]
    assert [len(one) for one in came] == [1, 1, 2, 7]
    assert sorted(offset for some in came for offset in some) == ALL[:11]


@pytest.mark.parametrize("before", [False, True], ids=["published later", "published before"])
def test_a_consumer_with_a_small_window_has_its_turn_beside_one_that_takes_whole_chunks(before: bool) -> None:
    core = bound()
    if before:
        core.change(*[publish("k", *BODIES)] * 4)
    small, large = consumer(core, 5), consumer(core, 1_000)
    if not before:
        for _ in range(4):
            core.change(publish("k", *BODIES))
    assert len(offsets(core, small)) == 5
    assert len(offsets(core, large)) == 4 * MESSAGES - 5


def test_a_small_window_has_its_turn_beside_others_that_take_what_was_read_before() -> None:
    core = bound()
    core.change(declare("other"), bind("other", "k"))
    for _ in range(4):
        core.change(publish("k", *BODIES))
    reader = core.session()
    core.attach(reader, "other", 1)
    core.take(reader)
    sessions = [core.session() for _ in range(2)]
    for session, window in zip(sessions, (1_000, 5), strict=True):
        core.dispatcher.attach(session, b"q", 1, window, 1 << 20)
    large, small = sessions
    assert len(offsets(core, small)) == 5
    assert len(offsets(core, large)) == 4 * MESSAGES - 5


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("window", [1, 2, 7])
def test_nacks_make_room_and_what_they_gave_back_comes_first(window: int, options: QueueOptions) -> None:
    core = bound(options)
    session = consumer(core, window)
    core.change(publish("k", *BODIES))
    held = offsets(core, session)
    attachment = session.attachments[1]
    key_id = next(iter(attachment.feed.streams))
    core.dispatcher.nack(attachment, key_id, held[0], held[-1] + 1, NackTerms())
    if options.max_deliveries:  # They rest until the tables have their counts.
        assert offsets(core, session) == ALL[window : 2 * window]
        core.settle()
        assert offsets(core, session) == []
        core.ack(session, "k", window + 1, 2 * window + 1)
    again = core.deliveries(session)
    assert [(one.low, one.to, one.redelivered) for one in again] == [(1, window + 1, 1)]
    core.ack(session, "k", 1, 2)
    assert len(offsets(core, session)) == 1


@pytest.mark.parametrize("window", [1, 2, 7])
def test_an_ack_timeout_gives_others_as_much_as_their_windows_allow(window: int) -> None:
    core = bound(QueueOptions(ack_timeout_ms=1_000, max_deliveries=5))
    silent = consumer(core, window)
    core.change(publish("k", *BODIES))
    assert offsets(core, silent) == ALL[:window]
    core.maintain()
    other = consumer(core, 3)
    assert len(offsets(core, other)) == 3
    core.ack(other, "k", window + 1, window + 4)
    assert len(offsets(core, other)) == 3
    core.now_ms += 1_000
    core.maintain()
    for session in (silent, other):
        core.take(session)
    held = [session.attachments[1].messages for session in (silent, other)]
    assert held == [window, 3]


def test_only_what_was_given_counts_as_delivered() -> None:
    """All of a chunk said that it was delivered before, as its first messages were."""
    core = bound()
    first = consumer(core, 7)
    core.change(publish("k", *BODIES))
    assert offsets(core, first) == ALL[:7]
    core.dispatcher.close(first)
    core.pump()
    again = consumer(core, 1_000)
    assert [(one.low, one.to, one.redelivered) for one in core.deliveries(again)] == [(1, 8, 1), (8, 21, 0)]


def test_only_what_was_given_loses_a_life() -> None:
    core = bound(QueueOptions(max_deliveries=2))
    core.change(publish("k", *BODIES))
    for _ in range(2):
        session = consumer(core, 1)
        assert offsets(core, session) == [1]
        core.dispatcher.close(session)
        core.settle()
    last = consumer(core, 100)
    found = core.deliveries(last)
    assert [(one.low, one.to, one.redelivered) for one in found] == [(2, 21, 0)], "only the first was used up"


@pytest.mark.parametrize("window", [1, 2, 7])
def test_another_attach_goes_on_in_the_middle_of_a_chunk(window: int) -> None:
    core = bound()
    session = consumer(core, 3)
    core.change(publish("k", *BODIES))
    core.take(session)
    core.ack(session, "k", 1, 3)
    core.take(session)
    core.dispatcher.detach(session, 1)
    core.pump()
    core.attach(session, "q", 2, window)
    found = core.deliveries(session)
    assert found[0].low == 3
    assert sum(one.to - one.low for one in found) == window


def test_a_window_in_bytes_bounds_parts_and_its_last_message_may_exceed_it() -> None:
    """As if each message were published alone."""
    for bodies in (BODIES, [bytes(1_000)] * MESSAGES):
        for window, most in ((1, 1), (2 * len(bodies[0]), 2), (2 * len(bodies[0]) + 1, 3)):
            core, alone = bound(), bound()
            core.change(publish("k", *bodies))
            for body in bodies:
                alone.change(publish("k", body))
            for one in (core, alone):
                session = consumer(one, 100, window)
                assert offsets(one, session) == ALL[:most]
                one.ack(session, "k", 1, 2)
                assert len(offsets(one, session)) == 1


def test_empty_messages_fill_no_window_in_bytes() -> None:
    core = bound()
    session = consumer(core, 100, 1)
    core.change(publish("k", *[b""] * MESSAGES))
    assert offsets(core, session) == ALL


def test_a_full_session_goes_on_in_the_middle_of_a_chunk() -> None:
    core = bound()
    core.change(declare("other"), bind("other", "o"))
    session = core.session(window_bytes=10)
    core.attach(session, "q", 1, 7)
    core.attach(session, "other", 2)
    core.change(publish("o", bytes(100)), publish("k", *BODIES))
    assert len(core.take(session)) == 1 + 7
    core.ack(session, "k", 1, 8)
    assert len(core.take(session)) == 7


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[int]]:
    """How often chunks were decoded to be cut, by their size."""
    found: Counter[int] = Counter()

    def counted(data: bytes) -> Chunk:
        found[len(data)] += 1
        return read_stored_chunk(data)

    monkeypatch.setattr(log_rows, "read_stored_chunk", counted)
    yield found


def test_a_large_chunk_in_many_parts_is_decoded_once(decoded: Counter[int]) -> None:
    core = bound()
    session = consumer(core, 1_000)
    core.change(*[publish("k", *[b"%04d" % number for number in range(1_000)])] * 3)
    core.take(session)
    sent = 0
    for done in range(1, 2_001):
        core.ack(session, "k", done, done + 1)
        (part,) = core.deliveries(session)
        sent += len(part.chunk)
        assert (part.low, part.to) == (done + 1_000, done + 1_001)
    assert list(decoded.values()) == [2], "each of the two chunks that came in parts"
    assert sent < 2_000 * 20, "each part travels without the rest"


def test_many_queues_in_step_have_a_part_cut_once(decoded: Counter[int], monkeypatch: pytest.MonkeyPatch) -> None:
    core = CoreDriver()
    names = [f"q{number}" for number in range(50)]
    core.change(declare(*names), *(bind(name, "k") for name in names))
    session = core.session()
    for handle, name in enumerate(names, 1):
        core.attach(session, name, handle, 10)
    core.change(publish("k", *[b"%04d" % number for number in range(1_000)]))
    cuts = 0

    def counted(chunk: Chunk, begin: int, end: int) -> bytes:
        nonlocal cuts
        cuts += 1
        return cut_chunk(chunk, begin, end)

    monkeypatch.setattr(log_rows, "cut_chunk", counted)
    for low in range(1, 101, 10):
        (part,) = core.deliveries(session)
        assert (part.low, part.to, len(part.handles)) == (low, low + 10, 50)
        for handle in part.handles:
            core.ack(session, "k", low, low + 10, handle)
    assert cuts == 10
    assert list(decoded.values()) == [1]


def test_decoded_chunks_are_bounded_and_the_one_used_longest_ago_goes_first() -> None:
    opened = OpenedChunks()
    size = (OPENED_CHUNKS_BYTES_MAX // 8 - OPENED_CHUNK_BYTES) // OPENED_ROW_TIMES
    chunks = [StoredChunk(first, encode_log(1, size, 0, 0, bytes(size))) for first in range(8)]
    for chunk in chunks[:7]:
        opened.keep(b"key", chunk)
    opened.keep(b"key", chunks[0])
    opened.keep(b"key", chunks[7])
    again = [StoredChunk(first, encode_log(1, 1, 0, 0, b"")) for first in range(8)]
    kept = [first for first in range(8) if opened.same(b"key", again[first]) is chunks[first]]
    assert kept == [0, 2, 3, 4, 5, 6, 7]
    assert opened.same(b"key", again[1]) is again[1]
    assert opened.same(b"other", again[0]) is again[0]


def test_decoded_chunks_count_with_all_that_they_take() -> None:
    """Only the bytes of log rows counted: of chunks with a thousand empty messages these are a twentieth."""
    opened, messages = OpenedChunks(), 1_000
    row = encode_log(messages, 0, 0, 0, encode_chunk([b""] * messages))
    chunks = [StoredChunk(first, row) for first in range(2 * OPENED_CHUNKS_BYTES_MAX // len(row) // 20)]
    for chunk in chunks:
        opened.keep(b"key", chunk)
    again = StoredChunk(0, row)
    kept = sum(opened.same(b"key", StoredChunk(chunk.first, row)) is chunk for chunk in chunks)
    assert 100 < kept < OPENED_CHUNKS_BYTES_MAX // (16 * len(row))
    assert opened.same(b"key", again) is again, "the first one went first"


def test_a_part_is_as_large_as_the_window_whatever_the_share_of_its_chunk() -> None:
    core = bound()
    session = consumer(core, CHUNK_MESSAGES_MAX // CUT_SHARE + 1)
    core.change(publish("k", *[b"x" * 10] * CHUNK_MESSAGES_MAX))
    assert len(offsets(core, session)) == CHUNK_MESSAGES_MAX // CUT_SHARE + 1


def test_more_consumers_than_one_turn_serves_have_one_each() -> None:
    core = bound()
    sessions = [consumer(core, 1) for _ in range(PUMP_TURN_ROWS + 50)]
    core.change(publish("k", *[b"x"] * CHUNK_MESSAGES_MAX))
    came = [offsets(core, session) for session in sessions]
    assert sorted(came) == [[offset] for offset in range(1, len(sessions) + 1)]


def test_the_rest_of_a_chunk_that_expires_before_it_has_room_is_a_gap() -> None:
    core = bound()
    session = consumer(core, 2)
    core.change(publish("k", *BODIES, ttl_ms=5_000))
    assert offsets(core, session) == [1, 2]
    core.now_ms += 10_000
    core.maintain()
    core.ack(session, "k", 1, 3)
    assert offsets(core, session) == []
    assert [(gap.first, gap.to) for gap in core.gaps] == [(3, MESSAGES + 1)]
    core.settle()
    core.check()


def test_what_is_done_in_a_chunk_takes_no_room() -> None:
    core = bound()
    core.change(publish("k", *BODIES))
    core.change(acks(("q", "k", 2, 4), ("q", "k", 6, 7)))
    session = consumer(core, 4)
    assert offsets(core, session) == [1, 4, 5, 7]
    core.ack(session, "k", 1, 2)
    assert offsets(core, session) == [8]
