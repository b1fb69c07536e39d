"""What a slice tells of acks whose answer was lost: which of their messages are still unacked (`Acks.tell_unacked`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import (
    ACKED_PER_STEP,
    BINDING_READ_COST,
    DONE_RANGES_COPIED_PER_COST,
    DONE_RANGES_MAX,
    INLINE_STREAMS_MAX,
)
from shoal_slice_node.core.node.settling import take_acks
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.turns import Source

from .brokers import connected, running
from .core_driver import CoreDriver, bind, declare, drop, every_second, publish, purge, unbind, with_done
from .raw_session import RawSession

BODIES = [b"%d" % number for number in range(10)]
"""They get the offsets 1 to 10."""


def ack(low: int, to: int, *handles: int, key: str = "k", queues: tuple[str, ...] = ()) -> wire.Ack:
    names = [queue.encode() for queue in queues]
    return wire.Ack(key=key.encode(), low=low, to=to, handles=handles, queues=names)


def told(core: CoreDriver, session: Session, *acks: wire.Ack) -> list[int]:
    """The places that are told, when all steps are done."""
    done: list[ShoalError | None] = []
    unacked: list[int] = []
    take_acks(core.node, Source("connection", session.number), session, list(acks), done.append, False, unacked)
    while core.node.turns:
        core.node.turns.step()
    assert done == [None]
    return unacked


def consumed(window_messages: int = 100) -> tuple[CoreDriver, Session]:
    """Ten messages, of which a session has as many as the window allows."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), *(publish("k", body) for body in BODIES))
    session = core.session()
    core.attach(session, "q", messages=window_messages)
    core.take(session)
    return core, session


def test_what_this_session_has_out_is_acked_and_not_told() -> None:
    core, session = consumed()
    assert told(core, session, ack(1, 4, 1), ack(6, 8, 1)) == []
    assert told(core, session, ack(1, 9, 1)) == [], "of these the session had the rest"
    core.flush()
    core.restart()
    later = core.session()
    core.attach(later, "q")
    assert [offset for _, offset, _ in core.take(later)] == [9, 10]


def test_what_does_not_fit_the_window_is_told_and_stays_unacked() -> None:
    core, session = consumed(window_messages=2)
    assert told(core, session, ack(5, 6, 1), ack(2, 6, 1), ack(1, 3, 1), ack(11, 20, 1)) == [0, 1]
    assert [offset for _, offset, _ in core.take(session)] == [3, 4]


def test_what_another_session_has_is_told_until_that_one_acks() -> None:
    core, session = consumed()
    other = core.session()
    core.attach(other, "q")
    assert told(core, other, ack(1, 4, 1)) == [0]
    core.ack(session, "k", 1, 4)
    assert told(core, other, ack(1, 4, 1)) == []


def test_places_count_handles_and_queues_in_the_order_of_the_frame() -> None:
    core, session = consumed(window_messages=1)
    core.change(declare("p", "r"), bind("p", "k"))
    core.attach(session, "p", 2)
    core.attach(session, "absent", 3)
    acks = ack(5, 6, 1, 2, 3, 4), ack(5, 6, 4, 1, queues=("q", "p", "r", "absent"))
    assert told(core, session, *acks) == [0, 3, 4, 5, 6], "handle 4 is not attached: nothing can be told of it"


def test_what_is_gone_is_not_told() -> None:
    core, session = consumed(window_messages=1)
    core.change(declare("p"), bind("p", "k"), unbind("q", "k", discard=True))
    assert told(core, session, ack(5, 6, 1), ack(5, 6, 1, key="never")) == []
    core, session = consumed(window_messages=1)
    core.change(purge("q"))
    assert told(core, session, ack(5, 6, 1)) == []
    core, session = consumed(window_messages=1)
    core.change(drop("q"))
    core.pump()
    assert told(core, session, ack(5, 6, 1)) == []


def test_an_ended_binding_has_its_backlog_to_ack_and_no_more() -> None:
    core, session = consumed(window_messages=1)
    core.change(declare("p"), bind("p", "k"), unbind("q", "k"), publish("k", b"later"))
    assert told(core, session, ack(10, 11, 1), ack(11, 12, 1)) == [0]


def test_what_is_bound_again_from_below_is_unacked_again() -> None:
    core, session = consumed()
    assert told(core, session, ack(1, 11, 1)) == []
    core.change(declare("p"), bind("p", "k", start=wire.START_EARLIEST))
    core.flush()
    core.change(unbind("q", "k"), bind("q", "k", start=wire.START_EARLIEST))
    assert told(core, core.session(), ack(1, 11, queues=("q",))) == [0]


def test_a_queue_that_nothing_consumes_is_looked_up_in_the_tables() -> None:
    core, session = consumed(window_messages=2)
    told(core, session, ack(1, 2, 1))
    core.flush()
    core.restart()
    later = core.session()
    assert told(core, later, ack(1, 2, queues=("q",)), ack(1, 3, queues=("q",))) == [1]
    assert not core.dispatcher.feeds, "looking leaves nothing in memory"


def test_a_binding_that_is_not_loaded_yet_is_looked_up_in_the_tables() -> None:
    core = CoreDriver()
    keys = [f"k{number}" for number in range(2 * INLINE_STREAMS_MAX)]
    core.change(declare("q"))
    core.change_all(bind("q", key) for key in keys)
    core.change_all(publish(key, b"1", b"2", b"3") for key in (keys[0], keys[-1]))
    with_done(core, "q", [keys[-1]], [(2, 3)])
    session = core.session()
    core.attach(session, "q")
    (feed,) = core.dispatcher.feeds.values()
    assert feed.loading and not feed.streams
    acks = [ack(low, to, 1, key=key) for key in (keys[0], keys[-1]) for low, to in ((2, 3), (1, 3))]
    assert told(core, session, *acks) == [0, 1, 3]
    core.pump()
    assert not feed.loading


def test_it_is_told_in_steps_and_without_decoding_done_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """12,000 looks at rows of 4,096 ranges took 1.8 s of the processor, only to find one of them."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    core.change_all(publish("k", b"a") for _ in range(DONE_RANGES_MAX))
    with_done(core, "q", ["k"], every_second(DONE_RANGES_MAX // 4))
    monkeypatch.setattr(Ranges, "of_sorted", lambda _: pytest.fail("all ranges are decoded"))
    session, steps, unacked = core.session(), 0, list[int]()
    acks = [ack(2, 3, queues=("q",) * 500), ack(2, 4, queues=("q",)), ack(2048, 2049, queues=("q",))]
    take_acks(core.node, Source("connection", 1), session, acks, lambda _: None, False, unacked)
    while core.node.turns:
        core.node.turns.step()
        steps += 1
    cost = BINDING_READ_COST + DONE_RANGES_MAX // 4 // DONE_RANGES_COPIED_PER_COST
    assert unacked == [500] and steps >= 500 * cost // (2 * ACKED_PER_STEP) > 1


async def test_what_is_answered_as_acked_is_durable(tmp_path: Path) -> None:
    """Also where another session's ack was taken, and is not in the journal yet."""
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub = SliceServiceStub(channel)
        first, second = await RawSession.open(stub), await RawSession.open(stub)
        await first.change(declare("q"), bind("q", "k"), publish("k", *BODIES))
        await first.attach([b"q"])
        await first.read_until(lambda: first.offsets(1) == list(range(1, 11)))
        await second.attach([b"q"])
        plain = await first.ask(wire.SessionRequest(acks=wire.Acks(acks=[ack(1, 2, 1)])))
        assert not plain.HasField("unacked"), "nothing asked for it"
        await first.write(wire.SessionRequest(acks=wire.Acks(acks=[ack(1, 5, 1)])))
        asked = wire.Acks(acks=[ack(1, 4, 1), ack(4, 6, 1)], tell_unacked=True)
        answer = await second.ask(wire.SessionRequest(acks=asked))
        while list(answer.unacked.places) != [1]:  # The first session's frame came later.
            assert list(answer.unacked.places) == [0, 1]
            answer = await second.ask(wire.SessionRequest(acks=asked))
        describe = wire.SessionRequest(describe=wire.Describe(queues=[b"q"]))
        assert (await second.ask(describe)).description.queues[0].messages == 6
        asked = wire.Acks(acks=[ack(1, 5, 1)], tell_unacked=True)
        assert (await second.ask(wire.SessionRequest(acks=asked))).HasField("unacked"), "also if all is acked"
