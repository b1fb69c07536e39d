"""Logs read for queues that are behind: what is done is jumped over, steps are bounded, none goes on with the scan of
another.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.pulling import PullTerms
from shoal_slice_node.core.limits import LOG_ROWS_PASSED_MAX, PULL_ROWS_PER_STEP, PUMP_TURN_ROWS, READ_ROWS_PER_STEP
from shoal_slice_node.core.read.listing import list_bindings, list_keys, list_members, list_queues
from shoal_slice_node.core.read.reading import NOT_CONSUMED, describe, peek
from shoal_slice_node.core.turns import Work

from .core_driver import CoreDriver, bind, bodies_of, declare, every_second, publish, with_done
from .watched_tables import WatchedTables

MESSAGES = 3_000
ROWS_AROUND = 3 * (LOG_ROWS_PASSED_MAX + 1)
"""Log rows read about two messages that are not done, whatever lies between."""


def backlog_of_rows(messages: int, pairs: list[tuple[int, int]]) -> tuple[CoreDriver, WatchedTables]:
    """Queue `q` has so many messages of key `k`, in a log row each, and has done these."""
    tables = WatchedTables()
    core = CoreDriver(tables)
    core.change(declare("q"), bind("q", "k"))
    core.change_all(publish("k", b"%d" % offset) for offset in range(1, messages + 1))
    if pairs:
        with_done(core, "q", ["k"], pairs)
    tables.log_rows = 0
    return core, tables


def queue_id(core: CoreDriver) -> bytes:
    return core.tables.queue_by_name.get(b"q") or b""


def longest_turn(core: CoreDriver, tables: WatchedTables) -> int:
    """Rows read by the longest turn of dispatch, until there is nothing more to do."""
    longest = 0
    working = True
    while working:
        tables.log_rows = 0
        working = core.dispatcher.turn()
        tables.step += 1
        longest = max(longest, tables.log_rows)
    return longest


def peeked(core: CoreDriver, messages: int) -> Work[list[wire.Delivery]]:
    return peek(core.state, queue_id(core), messages, 1 << 20)


def pulled(core: CoreDriver, messages: int) -> Work[list[wire.Delivery]]:
    terms = PullTerms(messages, 0, 0)
    parcels = yield from core.puller.pull(core.session(), queue_id(core), terms, lambda: core.now_ms)
    return [parcel.to_wire() for parcel in parcels]


@pytest.mark.parametrize("read", [peeked, pulled])
def test_a_read_jumps_over_what_is_done(read: Callable[[CoreDriver, int], Work[list[wire.Delivery]]]) -> None:
    core, tables = backlog_of_rows(MESSAGES, [(2, MESSAGES)])
    found, _, rows = tables.finish(read(core, 2))
    assert [delivery.low for delivery in found] == [1, MESSAGES]
    assert rows <= ROWS_AROUND


def test_an_attach_jumps_over_what_is_done() -> None:
    core, tables = backlog_of_rows(MESSAGES, [(2, MESSAGES)])
    session = core.session()
    core.attach(session, "q")
    assert tables.log_rows + longest_turn(core, tables) <= ROWS_AROUND
    assert [offset for _, offset, _ in core.take(session)] == [1, MESSAGES]


def test_between_thousands_of_done_ranges_steps_stay_short() -> None:
    ranges = [(first, first + 3) for first in range(2, MESSAGES - 4, 5)]
    core, tables = backlog_of_rows(MESSAGES, ranges)
    done = {offset for low, high in ranges for offset in range(low, high)}
    left = [offset for offset in range(1, MESSAGES + 1) if offset not in done]
    found, _, rows = tables.finish(peeked(core, MESSAGES))
    assert [message[1] for delivery in found for message in bodies_of(delivery)] == left
    assert rows <= READ_ROWS_PER_STEP + ROWS_AROUND
    taken, _, rows = tables.finish(pulled(core, 300))
    assert [delivery.low for delivery in taken] == left[:300]
    assert rows <= PULL_ROWS_PER_STEP + ROWS_AROUND
    session = core.session()
    core.attach(session, "q", messages=MESSAGES)
    assert longest_turn(core, tables) <= PUMP_TURN_ROWS + ROWS_AROUND
    assert [offset for _, offset, _ in core.take(session)] == left[300:]


WORKS: dict[str, Callable[[CoreDriver], Work[object]]] = {
    "peek": lambda core: peeked(core, MESSAGES),
    "pull": lambda core: pulled(core, MESSAGES),
    "describe": lambda core: describe(core.state, wire.Describe(queues=[b"q"], bindings=True), lambda _: NOT_CONSUMED),
    "bindings": lambda core: list_bindings(core.state, b"q", b"", 1000),
    "queues": lambda core: list_queues(core.state, b"", b"", 1000),
    "keys": lambda core: list_keys(core.state, b"", b"", 1000),
    "members": lambda core: list_members(core.state, b"k", b"", 1000),
}


@pytest.mark.parametrize("name", WORKS)
def test_no_step_goes_on_with_the_scan_of_another(name: str) -> None:
    """A checkpoint that ended between two steps of a peek made it fail."""
    core, tables = backlog_of_rows(MESSAGES, every_second(100))
    keys = [f"k{number}" for number in range(500)]
    core.change_all(bind("q", key) for key in keys)
    core.change_all(declare(f"q{number}") for number in range(500))
    core.change_all(bind(f"q{number}", "k") for number in range(500))
    core.change_all(publish(key, b"a", b"b") for key in keys)
    with_done(core, "q", keys, [(2, 3)])
    _, steps, _ = tables.finish(WORKS[name](core), core.dispatcher.turn)
    assert steps > 0, "the test is about more than one step"


def test_a_peek_goes_on_where_it_was_though_the_log_changes() -> None:
    core, _ = backlog_of_rows(500, [])
    work = peeked(core, MESSAGES)
    found: list[wire.Delivery] = []
    while not found:
        try:
            next(work)
        except StopIteration as stop:
            found = stop.value
        else:
            core.change(publish("k", b"later"))
    offsets = [delivery.low for delivery in found]
    assert len(offsets) >= 500 and offsets == list(range(1, len(offsets) + 1))
