"""Describe: depth in bytes is exact, and what it costs is bounded, also where bindings have many done ranges."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest

from shoal_contract.chunk import read_stored_chunk
from shoal_contract.errors import Malformed, ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply import log_rows
from shoal_slice_node.core.checking.session_frames import check_describe
from shoal_slice_node.core.limits import DESCRIBE_RANGES_PER_BINDING, READ_ROWS_PER_STEP
from shoal_slice_node.core.read import binding_walk, reading
from shoal_slice_node.core.read.reading import describe
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.rows.log_row import decode_log
from shoal_slice_node.core.turns import finish

from .core_driver import CoreDriver, bind, declare, every_second, publish, unbind, with_done
from .walked import walk_bindings

CHUNK = 100


def described(core: CoreDriver, *queues: bytes) -> wire.Description:
    return finish(describe(core.state, wire.Describe(queues=queues, bindings=True), lambda _: (0, False)))


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
    work = describe(core.state, wire.Describe(queues=[b"q"], bindings=True), lambda _: (0, False))
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
