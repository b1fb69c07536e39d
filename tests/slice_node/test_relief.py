"""Where done ranges take memory that is not there, the sessions that consume the most of them end, and no others."""

from __future__ import annotations

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import pump
from shoal_slice_node.core.limits import HEAVY_RANGES, OVERDRAWN_RANGES_PART, RANGE_BYTES

from .core_driver import CoreDriver, acks, bind, declare, drop, every_second, publish, unbind, with_done
from .nacks_driver import NacksDriver
from .relief_steps import consumed, ended, limit_to, queue, relieve
from .unsent_steps import declared


@pytest.mark.parametrize(
    ("ranges", "share", "ends"),
    [
        ([[800], [3000], [900]], 0.8, [False, True, False]),
        ([[1800], [1000] * 4], 0.8, [False, True]),
        ([[800], [100] * 40, [600]], 0.8, [False, True, False]),
        ([[50] * 10, [50] * 30, [50] * 20, [1000]], 0.6, [False, True, True, False]),
        ([[3000], [900]], 1 - 0.9 / (OVERDRAWN_RANGES_PART + 1), [False, False]),
        ([[3000], [900]], 1 - 1.1 / (OVERDRAWN_RANGES_PART + 1), [True, False]),
    ],
)
def test_the_sessions_with_the_most_ranges_end_and_no_more_than_it_takes(
    ranges: list[list[int]], share: float, ends: list[bool]
) -> None:
    """16,000 queues of 700 ranges each took 913 MB of a share of 80, as each had too few; an honest one ended."""
    core = CoreDriver()
    sessions = consumed(core, *ranges)
    limit_to(core, share)
    relieve(core)
    relieve(core)
    assert ended(*sessions) == ends, "also where those that end are not gone yet"
    for session in [one for one in sessions if one.ended_by is not None]:
        core.dispatcher.close(session)
    core.pump()
    assert ended(*sessions) == ends
    attached = core.dispatcher.shares.attached
    assert attached.free_bytes >= 0 or not any(ends)


def test_sessions_of_the_connection_with_the_most_ranges_end_before_one_that_has_more_of_its_own() -> None:
    """An honest session with 270 KB ended before 376 of 400 on twenty connections with 256 KB each."""
    core = CoreDriver()
    sessions = consumed(core, [1000], *[[900]] * 3, [800] * 2, connections="abbbc")
    limit_to(core, 0.85)
    relieve(core)
    assert ended(*sessions) == [False, True, False, False, False]
    core.dispatcher.close(sessions[1])
    core.pump()
    limit_to(core, 0.85)
    relieve(core)
    assert ended(*sessions) == [False, True, True, False, False]


def test_changes_that_make_few_ranges_of_each_of_many_queues_end_the_session_that_consumes_these() -> None:
    core, names = CoreDriver(), [f"q{number}" for number in range(40)]
    core.change(declare(*names), *(bind(name, "k") for name in names))
    core.change(publish("k", *[b""] * 200))
    (honest,), session = consumed(core, [HEAVY_RANGES + 100]), core.session()
    for handle, name in enumerate(names, 1):
        core.attach(session, name, handle, 1)
    core.pump()
    limit_to(core, 2)
    share = core.dispatcher.shares.attached
    for low in range(2, 200, 2):
        core.change(acks(*((name, "k", low, low + 1) for name in names)))
        relieve(core)
        if session.ended_by is not None and not session.closed:
            core.dispatcher.close(session)
        assert share.used_bytes < 1.2 * share.limit_bytes
    assert ended(session, honest) == [True, False]
    core.check()


def test_ranges_that_are_gone_and_those_of_queues_that_nothing_consumes_end_no_session() -> None:
    core = CoreDriver()
    heavy, honest = consumed(core, [3000], [900])
    core.dispatcher.close(heavy)
    core.settle()
    core.pump()
    share, room = core.dispatcher.shares.attached, core.dispatcher.registry.range_room
    assert list(room.feeds) == list(core.dispatcher.feeds.values())
    share.limit_bytes = 300_000
    share.hold(share.free_bytes + share.limit_bytes // 4)
    relieve(core)
    assert ended(honest) == [False], "others took the memory"
    core.dispatcher.close(honest)
    core.settle()
    assert not room.feeds and room.excess_bytes < 0


def test_sessions_that_share_queues_with_many_ranges_all_end_and_those_with_less_do_not() -> None:
    """To end one of them makes no room."""
    core = CoreDriver()
    first, honest = consumed(core, [1000] * 4, [1500])
    others = [core.session() for _ in range(2)]
    for session in others:
        for handle in range(1, 5):
            core.attach(session, f"0-{handle}", handle, 1)
    core.attach(others[0], "1-1", 5, 1)
    limit_to(core, 0.8)
    relieve(core)
    for _ in range(3):
        for session in (first, *others):
            if session.ended_by is not None and not session.closed:
                core.dispatcher.close(session)
                core.pump()
    assert ended(first, *others, honest) == [True, True, True, False]


def test_consumers_of_one_queue_count_with_a_part_of_it_each() -> None:
    core = CoreDriver()
    heavy, *consumers = consumed(core, [1200], [2400], [10], [10], [10])
    for session in consumers[1:]:
        core.attach(session, "1-1", 2, 1)
    limit_to(core, 0.8)
    relieve(core)
    assert ended(heavy, *consumers) == [True, False, False, False, False]


def test_a_session_that_ends_by_itself_meanwhile_makes_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "RELIEF_LOOKS_PER_STEP", 2)
    core = CoreDriver()
    heavy, honest = consumed(core, [3000], [900])
    limit_to(core, 0.8)
    core.dispatcher.relieve()
    core.dispatcher.turn()
    core.dispatcher.turn()
    core.dispatcher.close(heavy)
    core.dispatcher.dirty.clear()
    core.pump()
    assert ended(heavy, honest) == [False, False] and heavy.number not in core.dispatcher.dirty


def test_a_session_that_pulled_counts_with_what_it_pulled() -> None:
    core = CoreDriver()
    (honest,), puller = consumed(core, [900]), core.session()
    for number in range(30):
        queue(core, f"p{number}", 100)
        core.pull(puller, f"p{number}", 1, 3_600_000)
    limit_to(core, 0.7)
    relieve(core)
    assert ended(puller, honest) == [True, False]


def test_of_what_unary_calls_pulled_queues_with_the_most_ranges_are_given_up_before_a_session_with_less_ends() -> None:
    core = CoreDriver()
    (honest,), calls = consumed(core, [900]), core.session()
    core.dispatcher.share_among_calls(calls)
    counts = {"small": 1, **{f"p{number}": 300 + number for number in range(10)}}
    for name, count in counts.items():
        queue(core, name, count)
        core.pull(calls, name, 1, 3_600_000)
    limit_to(core, 0.8)
    relieve(core)
    assert ended(calls, honest) == [False, False]
    left = [one.feed.name.decode() for one in calls.pullers.values()]
    assert left == ["small", *(f"p{number}" for number in range(len(left) - 1))] and 5 < len(left) < 9
    assert core.dispatcher.shares.attached.free_bytes >= 0
    assert core.pull(calls, "p9", 1), "it is given again"


def test_a_session_ends_once_it_has_more_than_is_left_of_what_unary_calls_pulled() -> None:
    core = CoreDriver()
    (session,), calls = consumed(core, [400] * 10), core.session()
    core.dispatcher.share_among_calls(calls)
    for number in range(20):
        queue(core, f"p{number}", 300)
        core.pull(calls, f"p{number}", 1, 3_600_000)
    limit_to(core, 0.7)
    relieve(core)
    assert ended(session) == [True]
    half_bytes = core.dispatcher.shares.attached.limit_bytes // 2
    assert half_bytes - 300 * RANGE_BYTES < len(calls.pullers) * 300 * RANGE_BYTES <= half_bytes


def test_what_a_session_pulled_and_what_rests_stay_where_unary_calls_pulled_too() -> None:
    core = NacksDriver()
    (honest,), calls, session = consumed(core, [900]), core.session(), core.session(connection="another")
    core.dispatcher.share_among_calls(calls)
    queue(core, "p", 3000)
    core.pull(calls, "p", 1, 3_600_000)
    core.pull(session, "p", 1, 3_600_000)
    core.attach(honest, "p", 5, 1)
    core.take(honest)
    core.nack(honest, 1, 6, 3_600_000, "of p", 5)
    core.dispatcher.detach(honest, 5)
    core.pump()
    limit_to(core, 0.9)
    relieve(core)
    feed = core.dispatcher.feeds[core.tables.queue_by_name.get(b"p") or b""]
    assert feed.resting == 1 and list(feed.pullers) == [session.number] and not calls.pullers
    assert ended(session, honest) == [False, False]


def test_what_waits_for_its_count_rests_on_until_it_is_counted() -> None:
    core = NacksDriver()
    session = core.session()
    declared(core, "q", max_deliveries=3)
    core.change(bind("q", "k"))
    core.change(publish("k", *[b""] * 900), publish("k", *[b""] * 900))
    with_done(core, "q", ["k"], every_second(800))
    core.attach(session, "q", 1, 1)
    core.take(session)
    core.nack(session, 1, 2, 3_600_000)
    core.dispatcher.close(session)
    core.pump()
    limit_to(core, 0.5)
    feed = next(iter(core.dispatcher.feeds.values()))
    relieve(core)
    assert feed.resting == 1
    core.wait(100)
    assert feed.resting == 1 and core.dispatcher.feeds
    relieve(core)
    assert not core.dispatcher.feeds
    core.dispatcher.shares.attached.limit_bytes = 1 << 30
    other = core.session()
    core.attach(other, "q", 1, 1)
    assert [(one.low, one.redelivered) for one in core.deliveries(other)] == [(1, 1)]


def test_queues_that_nothing_consumes_and_of_which_something_rests_make_room() -> None:
    """A nack with a delay keeps a queue in memory, and nobody who ends."""
    core = NacksDriver()
    (honest,), session = consumed(core, [900]), core.session()
    for number in range(10):
        queue(core, f"r{number}", 300)
        core.attach(session, f"r{number}", number + 1, 1)
    core.take(session)
    for handle in range(1, 11):
        core.nack(session, 1, 2, 3_600_000, f"of r{handle - 1}", handle)
    core.dispatcher.close(session)
    core.flush()
    core.pump()
    assert len(core.dispatcher.feeds) == 11
    limit_to(core, 0.8)
    relieve(core)
    assert ended(honest) == [False] and core.dispatcher.shares.attached.free_bytes >= 0
    limit_to(core, 10)
    other = core.session()
    for number in range(10):
        core.attach(other, f"r{number}", number + 1, 1)
    again = [key for key, offset, _ in core.take(other) if offset == 1]
    assert len(again) == 5, "the others have half of the memory"


@pytest.mark.parametrize("step", [drop("r"), unbind("r", "of r", discard=True)])
def test_delays_that_are_over_keep_no_ranges_of_bindings_that_are_gone(step: wire.Step) -> None:
    """Up to a thousand are kept for as long as they would have lasted."""
    core = NacksDriver()
    session = core.session()
    queue(core, "r", 300)
    core.attach(session, "r", 1, 2)
    core.take(session)
    core.nack(session, 1, 2, 3_600_000, "of r")
    core.wait(100)
    ((_, _, stream, resting),) = core.dispatcher.registry.returns._delayed
    assert stream.done
    core.change(step)
    core.pump()
    assert resting.over and not (stream.done or stream.returned)
    core.check()


def test_a_look_is_taken_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "RELIEF_LOOKS_PER_STEP", 4)
    core = CoreDriver()
    heavy, honest = consumed(core, [50] * 20, [10])
    limit_to(core, 0.8)
    core.dispatcher.relieve()
    for _ in range(42 // 4):
        core.dispatcher.relieve()
        assert len(core.dispatcher.attaching.relief.looks) == 1
        assert heavy.ended_by is None and core.dispatcher.turn()
    core.pump()
    assert ended(heavy, honest) == [True, False]


def test_where_an_attach_is_refused_ranges_above_their_half_make_room() -> None:
    """Ranges that filled the share up to a sixteenth more than all of it stayed: nobody could attach any more."""
    core = CoreDriver()
    sessions = consumed(core, [3000], [900])
    limit_to(core, 1)
    core.change(declare("small"))
    other = core.session()
    relieve(core)
    assert ended(*sessions) == [False, False], "nobody wants more"
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        core.attach(other, "small")
    relieve(core)
    assert ended(*sessions) == [True, False]
    core.dispatcher.close(sessions[0])
    core.pump()
    core.attach(other, "small")
    relieve(core)
    assert ended(*sessions, other) == [True, False, False]


def test_where_attachments_fill_the_share_an_attach_that_is_refused_ends_nobody() -> None:
    core = CoreDriver()
    sessions = consumed(core, [10], [900])
    core.dispatcher.shares.attached.hold(1 << 20)
    limit_to(core, 1)
    core.change(declare("small"))
    with pytest.raises(ResourceExhausted):
        core.attach(core.session(), "small")
    relieve(core)
    assert ended(*sessions) == [False, False]
