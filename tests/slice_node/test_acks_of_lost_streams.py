"""Acks whose stream was lost (`Acks.of_lost_stream`): they are taken wherever their messages are now."""

from __future__ import annotations

from itertools import pairwise

import pytest

from shoal_contract.errors import ShoalError
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import acks_in_flight
from shoal_slice_node.core.dispatch.acks_in_flight import NackTerms
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.node.settling import take_acks
from shoal_slice_node.core.rows.key_row import ID, low_of
from shoal_slice_node.core.turns import Source
from tests.fuzz.small_limits import patched

from .core_driver import CoreDriver, bind, configure, declare, drop, publish, unbind

BODIES = [b"%d" % number for number in range(10)]
"""They get the offsets 1 to 10."""


def told(core: CoreDriver, session: Session, *spans: tuple[int, int], seen: int = 0) -> list[int]:
    """The places of what is still unacked, when all steps are done."""
    acks = [wire.Ack(key=b"k", low=low, to=to, handles=[1]) for low, to in spans]
    done: list[ShoalError | None] = []
    unacked: list[int] = []
    source = Source("connection", session.number)
    take_acks(core.node, source, session, acks, done.append, False, unacked, seen, of_lost_stream=True)
    while core.node.turns:
        core.node.turns.step()
    assert done == [None]
    core.pump()
    return unacked


def published(max_deliveries: int = 0) -> CoreDriver:
    core = CoreDriver()
    declared = declare("q")
    declared.declares.options.max_deliveries = max_deliveries
    core.change(declared, bind("q", "k"))
    core.change_all(publish("k", body) for body in BODIES)
    return core


def consumer(core: CoreDriver, window_messages: int) -> Session:
    session = core.session()
    core.attach(session, "q", messages=window_messages)
    return session


def offsets(core: CoreDriver, session: Session) -> list[int]:
    return [offset for _, offset, _ in core.take(session)]


def left(core: CoreDriver) -> list[int]:
    """What a consumer gets when the node starts again, of what its tables have."""
    core.flush()
    core.check()
    core.restart()
    return offsets(core, consumer(core, 1000))


def test_what_another_session_has_is_acked_and_its_window_opens() -> None:
    core = published()
    other, session = consumer(core, 4), consumer(core, 4)
    assert offsets(core, other) == [1, 3, 5, 7] and offsets(core, session) == [2, 4, 6, 8]
    assert told(core, session, (3, 4), (5, 6)) == []
    assert offsets(core, other) == [9, 10] and offsets(core, session) == []
    core.ack(other, "k", 1, 4)
    assert left(core) == [2, 4, 6, 7, 8, 9, 10]


def test_what_was_not_given_yet_is_acked_and_passed_over() -> None:
    core = published()
    session = consumer(core, 2)
    assert offsets(core, session) == [1, 2]
    assert told(core, session, (3, 5), (8, 9), (10, 20)) == []
    core.ack(session, "k", 1, 3)
    assert offsets(core, session) == [5, 6]
    core.ack(session, "k", 5, 7)
    assert offsets(core, session) == [7, 9]
    core.change(publish("k", b"more"))
    core.ack(session, "k", 7, 8)
    assert offsets(core, session) == [11], "what was published since is not acked"
    assert left(core) == [9, 11]


def test_what_is_to_be_given_again_is_acked() -> None:
    core = published()
    lost = consumer(core, 6)
    assert offsets(core, lost) == [1, 2, 3, 4, 5, 6]
    session = consumer(core, 1)
    assert offsets(core, session) == [7]
    core.dispatcher.close(lost)
    core.pump()
    assert told(core, session, (2, 6)) == []
    core.ack(session, "k", 7, 8)
    assert offsets(core, session) == [1]
    core.ack(session, "k", 1, 2)
    assert offsets(core, session) == [6]
    assert left(core) == [6, 8, 9, 10]


def test_ranges_that_are_done_in_part_are_acked_in_the_rest() -> None:
    core = published()
    session = consumer(core, 5)
    assert offsets(core, session) == [1, 2, 3, 4, 5]
    core.ack(session, "k", 2, 3)
    core.ack(session, "k", 4, 5)
    assert told(core, session, (1, 8)) == []
    assert left(core) == [8, 9, 10]


@pytest.mark.parametrize("max_deliveries", [0, 5])
def test_what_rests_stays_as_it_is_until_it_is_to_be_given(max_deliveries: int) -> None:
    """A record may be under way that says what becomes of it."""
    core = published(max_deliveries)
    session = consumer(core, 2)
    assert offsets(core, session) == [1, 2]
    row = core.tables.key.get(core.state.full_name(b"k"))
    assert row is not None
    core.dispatcher.nack(session.attachments[1], row[ID], 1, 2, NackTerms(delay_ms=5_000))
    assert told(core, session, (1, 3)) == [0]
    for _ in range(3):  # The delay is decided, written, and over.
        core.now_ms += 5_000
        core.maintain()
    assert told(core, session, (1, 3)) == []
    assert left(core) == [3, 4, 5, 6, 7, 8, 9, 10]


def test_an_ended_binding_is_done_when_all_of_it_is_acked() -> None:
    core = published()
    session = consumer(core, 2)
    assert offsets(core, session) == [1, 2]
    core.change(unbind("q", "k"), declare("p"), bind("p", "k"), publish("k", b"later"))
    assert told(core, session, (1, 20)) == []
    core.flush()
    core.settle()
    core.check()
    assert not core.dispatcher.feeds[next(iter(core.dispatcher.feeds))].streams


def test_an_ack_of_an_earlier_life_changes_nothing() -> None:
    core = published()
    session = consumer(core, 2)
    assert offsets(core, session) == [1, 2]
    core.change(drop("q"))
    core.pump()
    core.change(declare("q"), bind("q", "k"), publish("k", b"later"))
    assert told(core, session, (1, 20)) == []
    assert len(offsets(core, session)) == 1


def test_where_a_binding_has_as_many_ranges_as_it_may_only_what_is_out_is_acked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acks_in_flight, "DONE_RANGES_MAX", 2)
    core = published()
    session = consumer(core, 6)
    assert offsets(core, session) == [1, 2, 3, 4, 5, 6]
    core.ack(session, "k", 2, 3)
    core.ack(session, "k", 4, 5)
    assert told(core, session, (6, 7), (9, 10)) == [1]
    assert left(core) == [1, 3, 5, 7, 8, 9, 10]


def test_an_ack_without_a_first_offset_is_of_what_its_session_was_given_alone() -> None:
    """Taken as one of all that is below its end, it would lose what no session was ever given."""
    core = published()
    session = consumer(core, 2)
    assert offsets(core, session) == [1, 2]
    told(core, session, (0, 11))
    assert left(core) == [3, 4, 5, 6, 7, 8, 9, 10]


def test_what_its_key_does_not_keep_any_more_becomes_no_done_range() -> None:
    core = published()
    session = consumer(core, 1)
    assert offsets(core, session) == [1]
    core.change(configure("k", KeyOptions(capacity_messages=3, policy="drop_oldest")), publish("k", b"more"))
    row = core.tables.key.get(core.state.full_name(b"k"))
    assert row is not None and low_of(row) > 5
    assert told(core, session, (3, 5)) == []
    (stream,) = session.attachments[1].feed.streams.values()
    assert not stream.done and stream.cursor == 1


def test_what_waits_at_the_bound_of_done_ranges_comes_as_soon_as_an_ack_makes_room() -> None:
    with patched({"DONE_RANGES_MAX": 4}):
        core = published()
        session, other = consumer(core, 100), consumer(core, 100)
        assert offsets(core, session) == [1, 3] and offsets(core, other) == [2, 4]
        core.ack(other, "k", 2, 3)
        core.ack(other, "k", 4, 5)
        assert told(core, session, (6, 7)) == []
        row = core.tables.key.get(core.state.full_name(b"k"))
        assert row is not None
        core.dispatcher.nack(session.attachments[1], row[ID], 3, 4, NackTerms())
        core.pump()
        assert not offsets(core, session) and not offsets(core, other), "1 is out, and three ranges are done"
        assert told(core, session, (3, 4)) == []
        assert offsets(core, session) + offsets(core, other) == [5]


def test_an_ack_for_many_queues_is_taken_in_steps() -> None:
    names = [f"q{number}" for number in range(60)]
    core = CoreDriver()
    core.change(declare(*names), *(bind(name, "k") for name in names), publish("k", b"x"))
    session = core.session()
    for number, name in enumerate(names, 1):
        core.attach(session, name, number)
    core.pump()

    def acked() -> int:
        return core.state.counters.acks

    ack = wire.Ack(key=b"k", low=1, to=2, handles=range(1, len(names) + 1))
    done: list[ShoalError | None] = []
    source, in_steps = Source("connection", session.number), [acked()]
    with patched({"ACKED_PER_STEP": 10}):
        take_acks(core.node, source, session, [ack], done.append, False, None, 0, of_lost_stream=True)
        in_steps.append(acked())
        while core.node.turns:
            core.node.turns.step()
            in_steps.append(acked())
    assert done == [None] and in_steps[-1] == len(names)
    assert all(after - before <= 10 for before, after in pairwise(in_steps))
