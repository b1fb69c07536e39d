"""Chunks that were read for one queue are given to the next ones that lag behind the same key."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from shoal_contract.chunk import encode_chunk
from shoal_slice_node.core.dispatch import growing
from shoal_slice_node.core.dispatch.recent_chunks import ChunkPart, RecentChunks
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.limits import DONE_RANGES_MAX, RECENT_CHUNK_BYTES, RECENT_CHUNKS_BYTES_MAX

from .core_driver import CoreDriver, bind, declare, publish, purge

QUEUES = [f"q{number}" for number in range(20)]


def lagging(core: CoreDriver, queues: list[str] = QUEUES, chunks: int = 5) -> Session:
    """A session whose queues have the same backlog of one key, which it has not been given yet."""
    core.change(declare(*queues))
    core.change(*(bind(queue, "k") for queue in queues))
    for number in range(chunks):
        core.change(publish("k", b"a%d" % number, b"b%d" % number))
    session = core.session()
    for handle, queue in enumerate(queues, 1):
        core.attach(session, queue, handle)
    return session


def test_queues_that_lag_behind_one_key_read_its_log_once(monkeypatch: pytest.MonkeyPatch) -> None:
    core = CoreDriver()
    log = core.tables.log
    rows_read = 0

    def counted(key_id: bytes, low: int, offset: int) -> Iterator[tuple[int, bytes]]:
        nonlocal rows_read
        for row in log_read(key_id, low, offset):
            rows_read += 1
            yield row

    log_read = log.read
    monkeypatch.setattr(log, "read", counted)
    session = lagging(core)
    assert len(core.take(session)) == 10, "one delivery for all queues"
    assert rows_read <= 6, "each chunk is read once, not once for each queue"


def test_each_queue_gets_every_message_once_and_in_order_when_only_some_was_read_before() -> None:
    core = CoreDriver()
    session = lagging(core, chunks=3)
    core.take(session)
    late = core.session()
    core.change(declare("late"), bind("late", "k"))
    for number in range(3, 6):
        core.change(publish("k", b"a%d" % number, b"b%d" % number))
    core.attach(late, "late", 1)
    assert core.take(late) == [("k", 7 + at, b"%c%d" % ("ab"[at % 2].encode(), 3 + at // 2)) for at in range(6)]


def test_what_was_purged_is_not_given_although_it_was_read_before() -> None:
    core = CoreDriver()
    core.change(declare("other"), bind("other", "k"))
    session = lagging(core)
    core.take(session)
    core.change(purge("other"))
    core.change(publish("k", b"news"))
    other = core.session()
    core.attach(other, "other", 1)
    assert core.take(other) == [("k", 11, b"news")]


def test_what_is_given_again_says_so_although_it_was_read_before() -> None:
    core = CoreDriver()
    first = lagging(core, chunks=2)
    core.take(first)
    core.dispatcher.close(first)
    again = core.session()
    core.attach(again, QUEUES[0], 1)
    found = core.deliveries(again)
    assert [(delivery.low, delivery.to, delivery.redelivered) for delivery in found] == [(1, 3, 1), (3, 5, 1)]


def test_what_was_acked_out_of_order_does_not_come_again_with_a_chunk_that_was_read_before() -> None:
    core = CoreDriver()
    core.change(declare("other", "q"), bind("other", "k"), bind("q", "k"))
    core.change(publish("k", b"a", b"b"), publish("k", b"c", b"d"))
    first = core.session()
    core.attach(first, "q", 1)
    core.take(first)
    core.ack(first, "k", 3, 4)
    core.flush()
    core.dispatcher.close(first)
    core.restart()  # The next leader does not know what was given, only what was acked.
    other, again = core.session(), core.session()
    core.attach(other, "other", 1)
    assert [message[1] for message in core.take(other)] == [1, 2, 3, 4]
    core.attach(again, "q", 1)
    assert [message[1] for message in core.take(again)] == [1, 2, 4]


def test_a_pull_for_few_messages_takes_no_whole_chunk() -> None:
    core = CoreDriver()
    core.take(lagging(core))
    core.change(declare("pulled"), bind("pulled", "k"))
    core.change(publish("k", b"x", b"y", b"z"))
    reader = core.session()
    core.attach(reader, "pulled", 1)
    core.take(reader)
    core.dispatcher.close(reader)
    puller = core.session()
    assert [(one.low, one.to) for one in core.pull(puller, "pulled", 1)] == [(11, 12)]
    assert [(one.low, one.to) for one in core.pull(puller, "pulled", 5)] == [(12, 14)]


def test_what_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    recent = RecentChunks()
    size = RECENT_CHUNKS_BYTES_MAX // 8 - RECENT_CHUNK_BYTES
    for first in range(20):
        recent.keep(b"key", ChunkPart(b"k", first, first, first + 1, size, 0, bytes(size), 0))
    assert [first for first in range(20) if recent.get(b"key", first) is not None] == list(range(12, 20))
    recent.keep(b"key", ChunkPart(b"k", 30, 30, 31, 3 * size, 0, bytes(3 * size), 0))
    assert recent.get(b"key", 30) is None, "it would push out most others"
    assert recent.get(b"key", 19) is not None


def test_small_chunks_count_with_all_that_they_take() -> None:
    """Only the bytes of chunks counted: 524,288 chunks of one empty message took 225 MiB of 1."""
    recent, chunk_bytes = RecentChunks(), len(encode_chunk([b""]))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(3 * RECENT_CHUNKS_BYTES_MAX // RECENT_CHUNK_BYTES):
        first, key_id, name = 1_000_000 + number, number.to_bytes(8, "big"), b"the name of key %d" % number
        recent.keep(key_id, ChunkPart(name, first, first, first + 1, 0, first, bytes(chunk_bytes), 0))
    taken_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert RECENT_CHUNKS_BYTES_MAX // 2 < taken_bytes < RECENT_CHUNKS_BYTES_MAX * 9 // 8
    assert recent.get(key_id, first) is not None


def test_acks_of_the_first_chunks_open_the_window_by_just_these() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    session = core.session()
    core.attach(session, "q", 1, messages=6)
    for number in range(5):
        core.change(publish("k", b"a%d" % number, b"b%d" % number))
    assert len(core.take(session)) == 6
    attachment = session.attachments[1]
    core.ack(session, "k", 1, 4)
    assert attachment.messages == 3
    assert attachment.body_bytes == 6
    assert session.owed == 1
    assert [message[1] for message in core.take(session)] == [7, 8, 9], "of the fifth chunk only a part"
    core.ack(session, "k", 4, 10)
    assert (attachment.messages, attachment.body_bytes, session.owed) == (0, 0, 0)
    core.flush()
    assert [message[1] for message in core.take(session)] == [10]
    core.check()


@pytest.mark.parametrize("messages", [1, 2, 3, 7, 8, 100])
@pytest.mark.parametrize("size", [1, 4, 9, 100])
@pytest.mark.parametrize("window_bytes", [1, 1_300, 5_000, 100_000])
def test_chunks_that_were_read_before_end_at_the_same_bounds_as_those_that_are_read(
    messages: int, size: int, window_bytes: int
) -> None:
    chunks = [[b"c"] if number % 3 == 0 else [b"a", b"b"] for number in range(12)]
    assert given_either_way(chunks, messages, size, window_bytes) > 0


def test_chunks_that_were_read_before_keep_the_bound_on_done_ranges() -> None:
    assert given_either_way([[b"x"] * 1_000] * 6, 100_000, 1 << 20, 1 << 20) == DONE_RANGES_MAX


def test_chunks_that_were_read_before_end_where_the_session_owes_too_much() -> None:
    assert given_either_way([[b"a", b"b"]] * 4, 100, 1 << 20, 1 << 20, owed_max=1) == 2


def given_either_way(
    chunks: list[list[bytes]], messages: int, size: int, window_bytes: int, owed_max: int = 1_000
) -> int:
    """Attaches a queue where another one has read the whole log, and where it must read for itself: it must get the
    same. Returns how many messages."""
    found = []
    for read_before in (False, True):
        core = CoreDriver()
        core.change(declare("other", "q"), bind("other", "k"), bind("q", "k"))
        for bodies in chunks:
            core.change(publish("k", *bodies))
        if read_before:
            other = core.session()
            core.attach(other, "other", 1, 1)
            while core.take(other):
                core.ack(other, "k", 1, 100_000)
        session = core.session(window_bytes)
        session.limit_owed(owed_max)
        core.attach(session, "q", 1, messages, size)
        core.pump()
        held = session.attachments[1]
        parcels = [(parcel.low, parcel.to, parcel.handles) for parcel in session.waiting.values()]
        found.append((parcels, held.messages, held.body_bytes, session.owed, session.under_way_bytes))
        core.take(session)
        assert session.under_way_bytes == core.dispatcher.shares.deliveries.used_bytes == 0
    assert found[0] == found[1]
    return found[0][1]


def test_chunks_that_were_read_before_are_given_only_while_the_share_of_deliveries_has_room() -> None:
    """Whatever room the session itself has."""
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=100_000))
    core.change(declare("a", "b"), bind("a", "k"), bind("b", "k"))
    for _ in range(30):
        core.change(publish("k", bytes(1_000)))
    first, session = core.session(), core.session()
    core.attach(first, "a")
    core.take(first)
    deliveries = core.dispatcher.shares.deliveries
    deliveries.hold(95_000)
    core.attach(session, "b")
    core.pump()
    assert session.waiting and session.has_room_of_its_own
    assert deliveries.used_bytes < deliveries.limit_bytes + 2_000


def test_a_queue_gets_no_chunk_in_a_parcel_that_leaves_before_what_it_got_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parcel is looked for once for each session, and then joined by its other queues."""
    monkeypatch.setattr(growing, "GIVEN_AT_ONCE_MAX", 1)
    core, names = CoreDriver(), ["a", "b", "c"]
    core.change(declare(*names, "other"), *(bind(name, "k") for name in names), bind("other", "o"))
    session = core.session()
    for handle, name in enumerate([*names, "other"], 1):
        core.attach(session, name, handle)
    core.pump()
    core.change(publish("k", b"1"))
    core.dispatcher.growing.turn(1)
    core.change(publish("o", b"2"))
    (stream,) = session.attachments[3].feed.streams.values()
    (other,) = session.attachments[4].feed.streams.values()
    stream.join_parcel(other.parcel)
    order = [(one.key, list(one.handles)) for one in core.deliveries(session)]
    assert order == [(b"k", [1, 2]), (b"o", [4]), (b"k", [3])]
