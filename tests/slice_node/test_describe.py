"""Describe: depth in bytes is exact, and what it costs is bounded, also where bindings have many done ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from shoal_contract.chunk import read_stored_chunk
from shoal_contract.errors import Malformed, ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply import log_rows
from shoal_slice_node.core.checking.session_frames import check_describe
from shoal_slice_node.core.limits import (
    CONSUMERS_PER_COST,
    DESCRIBE_RANGES_PER_BINDING,
    DONE_RANGES_MAX,
    READ_ROWS_PER_STEP,
)
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.read import binding_walk, reading
from shoal_slice_node.core.read.reading import NOT_CONSUMED, describe
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.rows.log_row import decode_log
from shoal_slice_node.core.turns import finish

from .core_driver import CoreDriver, bind, declare, every_second, publish, unbind, with_done
from .nacks_driver import NacksDriver, attached
from .walked import walk_bindings

CHUNK = 100


def described(core: CoreDriver, *queues: bytes) -> wire.Description:
    return finish(describe(core.state, wire.Describe(queues=queues, bindings=True), lambda _: NOT_CONSUMED))


def counted(function: Callable[[bytes], object], calls: list[int]) -> Callable[[bytes], object]:
    def call(data: bytes) -> object:
        calls.append(len(data))
        return function(data)

    return call


def test_each_log_row_is_decoded_once_in_a_step_however_many_done_ranges_it_has() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    bodies = [b"x" * (number % 7) for number in range(10 * CHUNK)]
    for first in range(0, len(bodies), CHUNK):
        core.change(publish("k", *bodies[first : first + CHUNK]))
    pairs = every_second(490)
    with_done(core, "q", ["k"], pairs)
    rows: list[int] = []
    chunks: list[int] = []
    with (
        patch.object(log_rows, "decode_log", counted(decode_log, rows)),
        patch.object(log_rows, "read_stored_chunk", counted(read_stored_chunk, chunks)),
    ):
        found = described(core, b"q").queues[0]
    done = {offset for low, high in pairs for offset in range(low, high)}
    left = [len(body) for offset, body in enumerate(bodies, 1) if offset not in done]
    assert (found.messages, found.body_bytes) == (len(left), sum(left))
    assert len(chunks) <= 10 + 490 // READ_ROWS_PER_STEP + 1, "no chunk is kept from step to step"
    assert len(rows) <= 10 + 2 * len(pairs) // READ_ROWS_PER_STEP + 20, "a step looks for its first row anew"


@pytest.mark.parametrize("room", [-1, 0])
def test_done_ranges_count_into_the_limit_of_a_describe(room: int) -> None:
    core = CoreDriver()
    keys = [f"k{number}" for number in range(2 * READ_ROWS_PER_STEP + 1)]
    core.change(declare("q"), bind("q", *keys))
    core.change(*(publish(key, *([b"x"] * 70)) for key in keys))
    with_done(core, "q", keys, every_second(32))
    cost = len(keys) * (2 + 32 // DESCRIBE_RANGES_PER_BINDING)
    with patch.object(reading, "DESCRIBE_BINDINGS_MAX", cost + room):
        if room < 0:
            with pytest.raises(ResourceExhausted, match="done ranges"):
                described(core, b"q")
        else:
            assert described(core, b"q").queues[0].messages == len(keys) * 38


def test_bindings_that_end_while_a_queue_is_described_are_left_out() -> None:
    core = CoreDriver()
    keys = [f"k{number}" for number in range(10)]
    core.change(declare("q"), bind("q", *keys))
    core.change(*(publish(key, *([b"x"] * 600)) for key in keys))
    with_done(core, "q", keys, every_second(250))
    work = describe(core.state, wire.Describe(queues=[b"q"], bindings=True), lambda _: NOT_CONSUMED)
    for _ in range(4):
        next(work)
    core.change(unbind("q", *keys, discard=True))
    core.settle()
    assert not list(core.tables.key.scan()), "its keys went"
    found = finish(work).queues[0]
    assert 0 < len(found.bindings) < len(keys) and found.messages == 350 * len(found.bindings)


@pytest.mark.parametrize("unbound", [False, True])
def test_done_ranges_are_decoded_a_bounded_number_at_a_time(unbound: bool) -> None:
    """A bucket of forty bindings, 2,000 ranges each, was one step of 14 ms; ended ones came 256 at a time."""
    core = CoreDriver()
    keys = [f"k{number}" for number in range(20)]
    core.change(declare("q"), bind("q", *keys))
    core.change(*(publish(key, *([b"x"] * 70)) for key in keys))
    with_done(core, "q", keys, every_second(30))
    if unbound:
        core.change(unbind("q", *keys))
    queue = core.state.load_queue(b"q")
    assert queue is not None
    with patch.object(binding_walk, "WALKED_RANGES_PER_COST", 1):
        batches = [len(batch) for batch in walk_bindings(core.state, queue.id)]
    assert max(batches) == 4 and sum(batches) == len(keys), "30 ranges each, READ_ROWS_PER_STEP in all"


def test_a_binding_that_stays_comes_once_though_others_of_its_bucket_go_meanwhile() -> None:
    core = CoreDriver()
    keys = [f"k{number}" for number in range(200)]
    core.change(declare("q"), bind("q", *keys))
    core.change(*(publish(key, *([b"x"] * 10)) for key in keys))
    with_done(core, "q", keys, every_second(3))
    queue = core.state.load_queue(b"q")
    assert queue is not None
    met: list[bytes] = []
    gone: set[str] = set()
    with patch.object(binding_walk, "READ_ROWS_PER_STEP", 20):
        for number, batch in enumerate(walk_bindings(core.state, queue.id)):
            met += [binding.key_id for binding in batch]
            if number % 3 == 0 and len(gone) < 150:
                going = [key for key in keys if key not in gone][number % 7 :: 5][:10]
                core.change(unbind("q", *going, discard=True))
                gone.update(going)
    stayed = {core.tables.key.get(core.state.full_name(key.encode())) for key in keys if key not in gone}
    assert len(met) == len(set(met)) and {(row or b"")[ID] for row in stayed} <= set(met)


@pytest.mark.parametrize("request_", [wire.Describe(queues=[b"q", b"q"]), wire.Describe(keys=[b"k", b"l", b"k"])])
def test_a_name_is_described_once(request_: wire.Describe) -> None:
    """One that named a queue 400 times took a node of 512 MiB to 3.4 GiB: its bindings were listed each time."""
    with pytest.raises(Malformed, match="twice"):
        check_describe(request_)


def test_queues_with_many_consumers_are_described_in_as_many_steps_more() -> None:
    """What each of them has unacked is added up."""
    core, queues = CoreDriver(), [b"q%d" % number for number in range(20)]
    core.change(declare(*(queue.decode() for queue in queues)))
    per_step = CONSUMERS_PER_COST * READ_ROWS_PER_STEP

    def steps(each: int) -> int:
        consumption = NOT_CONSUMED._replace(attached=each // 2, pullers=each - each // 2)
        return sum(1 for _ in describe(core.state, wire.Describe(queues=queues), lambda _: consumption))

    assert steps(per_step) == steps(0) + len(queues)


def test_what_consumers_have_unacked_is_told_and_which_key_gives_no_more() -> None:
    """Of five consumers that do not ack, one had nothing, and nothing told why."""
    core = CoreDriver()
    core.change(declare("q"), declare("idle"), bind("q", "k", "other"))
    sessions = [core.session() for _ in range(3)]
    for session in sessions[:2]:
        core.attach(session, "q", messages=DONE_RANGES_MAX)
    for _ in range(60):
        core.change(publish("k", *[b"x"] * CHUNK))
    core.change(publish("other", b"y"))
    core.pump()

    def told() -> tuple[int, dict[bytes, tuple[int, bool]]]:
        request = wire.Describe(queues=[b"q", b"idle"], bindings=True)
        found, idle = finish(requests.describe(core.node, request).whole()).description.queues
        assert not idle.unacked
        return found.unacked, {one.key: (one.unacked, one.full) for one in found.bindings}

    assert told() == (DONE_RANGES_MAX + 1, {b"k": (DONE_RANGES_MAX, True), b"other": (1, False)})
    (first, *_) = core.dispatcher.take(sessions[0], 1 << 20).deliveries
    core.ack(sessions[0], "k", first.low, first.low + 1)
    core.pump()
    assert told() == (DONE_RANGES_MAX + 1, {b"k": (DONE_RANGES_MAX, True), b"other": (1, False)}), "one more was given"
    core.dispatcher.detach(sessions[0], 1)
    core.dispatcher.detach(sessions[1], 1)
    core.pump()
    assert told() == (0, {b"k": (0, False), b"other": (0, False)})
    pulled = core.pull(sessions[2], "q", 10)
    assert sum(one.to - one.low for one in pulled) == 10 and told()[0] == 10, "pulls count"


def test_what_rests_for_the_delay_of_a_nack_is_unacked_in_the_queue_and_in_its_binding() -> None:
    """It counts in what a key gives at most, so the binding had it; the queue did not: it was full, with 0 unacked."""
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k"))
    core.change_all(publish("k", *[b"x"] * CHUNK) for _ in range(60))
    session = attached(core, messages=CHUNK)

    def told() -> tuple[int, int, bool]:
        request = wire.Describe(queues=[b"q"], bindings=True)
        (found,) = finish(requests.describe(core.node, request).whole()).description.queues
        (binding,) = found.bindings
        return found.unacked, binding.unacked, binding.full

    while taken := [offset for _, offset, _ in core.take(session)]:
        core.nack(session, taken[0], taken[-1] + 1, delay_ms=60_000)
        core.pump()
    assert told() == (DONE_RANGES_MAX, DONE_RANGES_MAX, True)
    core.dispatcher.detach(session, 1)
    core.pump()
    assert told() == (DONE_RANGES_MAX, DONE_RANGES_MAX, True), "no consumer that ends gives it back"
    core.wait(61_000)
    assert told() == (0, 0, False)


class LogSpy:
    """Passes reads on, and counts the bytes of rows that were read whole."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.read_bytes = 0

    def read(self, key_id: bytes, low: int, offset: int) -> Iterator[tuple[int, bytes]]:
        for first, row in self._log.read(key_id, low, offset):
            self.read_bytes += len(row)
            yield first, row

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@pytest.mark.parametrize(("what", "within"), [("queue", False), ("keys", False), ("queue", True)])
def test_large_chunks_are_read_only_where_they_must_be_and_few_in_a_step(what: str, within: bool) -> None:
    """40 keys with chunks of 1.9 MB made a step of 30 to 150 ms: what a backlog begins with was read whole, and not
    counted."""
    core = CoreDriver()
    keys = [f"k{number}" for number in range(40)]
    core.change(declare("q"), bind("q", *keys))
    for key in keys:
        core.change(publish(key, bytes(900_000), bytes(1_000_000)))
    core.change(declare("late"), *(bind("late", key) for key in keys))
    for key in keys:
        core.change(publish(key, b"x"))
    if within:
        session = core.session()
        core.attach(session, "q")
        core.pump()
        for key in keys:
            core.ack(session, key, 1, 2)
        core.flush()
    request = wire.Describe(queues=[b"q"]) if what == "queue" else wire.Describe(keys=[key.encode() for key in keys])
    spy = LogSpy(core.tables.log)
    core.tables.log = spy
    work, most_bytes, all_bytes = describe(core.state, request, lambda _: NOT_CONSUMED), 0, 0
    while True:
        spy.read_bytes = 0
        ended = next(work, "ended") == "ended"
        most_bytes, all_bytes = max(most_bytes, spy.read_bytes), all_bytes + spy.read_bytes
        if ended:
            break
    assert most_bytes <= (5 * 2_000_000 if within else 0)
    assert bool(all_bytes) == within


@pytest.mark.parametrize(("messages", "size"), [(3, 10_600), (63, 500)])
def test_chunks_of_a_few_kilobytes_that_are_read_for_their_sizes_count(messages: int, size: int) -> None:
    """A step of 100 bindings opened 700 chunks of 31 KB: 30 to 41 ms."""
    core, each = CoreDriver(), 7
    keys = [f"k{number}" for number in range(20)]
    core.change(declare("q"), bind("q", *keys))
    for key in keys:
        core.change(*(publish(key, *[bytes(size)] * messages) for _ in range(each)))
    middles = [1 + chunk * messages + messages // 2 for chunk in range(each)]
    with_done(core, "q", keys, [(middle, middle + 1) for middle in middles])
    calls: list[int] = []
    ends = [0]
    with patch.object(log_rows, "read_stored_chunk", counted(read_stored_chunk, calls)):
        for _ in requests.describe(core.node, wire.Describe(queues=[b"q"], bindings=True)).whole():
            ends.append(len(calls))
        ends.append(len(calls))
    assert len(calls) >= len(keys) * each
    assert max(end - begin for begin, end in pairwise(ends)) <= READ_ROWS_PER_STEP // 3
