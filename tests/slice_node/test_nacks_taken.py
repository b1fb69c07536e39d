"""Numbered nacks: each delivery tells which its slice had looked at before it put it on its way."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from shoal_contract.errors import Malformed, TooLarge
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import growing as growing_module
from shoal_slice_node.core.dispatch.nacks_taken import NacksTaken
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import ACKED_PER_STEP

from .core_driver import bind, publish
from .nacks_driver import TIMEOUT_MS, NacksDriver
from .unsent_steps import attached, declared

Joins = Callable[[NacksDriver, Session], list[tuple[int, list[int], int]]]


@pytest.fixture
def core() -> NacksDriver:
    core = NacksDriver()
    declared(core, "q")
    core.change(bind("q", "k"), *[publish("k", b"x")] * 5)
    return core


def nacks(number: int, *spans: tuple[int, int], handles: tuple[int, ...] = (1,), key: bytes = b"k") -> wire.Nacks:
    messages = [wire.Ack(key=key, low=low, to=to, handles=handles) for low, to in spans]
    return wire.Nacks(messages=messages, unseen=True, number=number)


def told(core: NacksDriver, session: Session) -> list[tuple[int, int]]:
    """(first offset, nacks taken) of each delivery that the session gets now."""
    return [(delivery.low, delivery.nacks_taken) for delivery in core.deliveries(session)]


def test_what_comes_again_tells_the_nack(core: NacksDriver) -> None:
    session = attached(core)
    assert told(core, session) == [(offset, 0) for offset in range(1, 6)]
    core.frame(session, nacks(7, (2, 3), (4, 5), handles=(1, 99)))
    core.frame(session, nacks(11, (3, 4)))
    core.frame(session, nacks(12, (1, 2), key=b"no such key"))
    core.change(publish("k", b"new"))
    assert told(core, session) == [(2, 12), (3, 12), (4, 12), (6, 12)]


def test_what_waited_before_tells_the_nacks_of_before(core: NacksDriver) -> None:
    session = attached(core)
    told(core, session)
    core.change(publish("k", b"waits"))
    core.pump()
    core.frame(session, nacks(1, (1, 2)))
    core.pump()
    core.frame(session, nacks(2, (2, 3)))
    core.change(publish("k", b"new"))
    assert told(core, session) == [(6, 0), (1, 1), (2, 2), (7, 2)]


def comes_again(core: NacksDriver, session: Session) -> list[tuple[int, list[int], int]]:
    """A message that waits for two queues comes back from one of them."""
    core.attach(session, "r", handle=2)
    core.change(publish("k", b"both"))
    core.pump()
    core.frame(session, nacks(1, (6, 7)))
    return [(6, [2], 0), (6, [1], 1)]


def grows_in_turns(core: NacksDriver, session: Session) -> list[tuple[int, list[int], int]]:
    """The chunk has reached the first queue; the second one is reached in a later turn."""
    core.attach(session, "r", handle=2)
    core.pump()
    core.change(publish("k", b"both"))
    growing = core.dispatcher.growing
    growing.turn(1)
    assert [(parcel.low, list(parcel.handles)) for parcel in session.waiting.values()] == [(6, [1])]
    core.frame(session, nacks(1, (1, 2)))
    while growing.spreads:
        growing.turn(1)
    return [(6, [1], 0), (6, [2], 1), (1, [1], 1)]


def follows_in_the_log(core: NacksDriver, session: Session) -> list[tuple[int, list[int], int]]:
    """A queue that is attached later reads what waits for the first one, and what was read is kept: of a run of chunks
    the first one is given by itself."""
    core.change(publish("k", b"both"), publish("k", b"both"))
    core.pump()
    attached(core, "s")
    core.frame(session, nacks(1, (1, 2)))
    core.attach(session, "r", handle=2)
    return [(6, [1], 0), (7, [1], 0), (6, [2], 1), (7, [2], 1), (1, [1], 1)]


@pytest.mark.parametrize("joins", [comes_again, grows_in_turns, follows_in_the_log])
def test_nothing_joins_what_waited_when_nacks_were_taken(
    core: NacksDriver, joins: Joins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another queue of the session would get a message with a number of before. Parcels are joined in two places, and
    what is read in a run follows one that was given so."""
    declared(core, "r", "s")
    session = attached(core)
    told(core, session)
    core.change(bind("r", "k"), bind("s", "k"))
    if joins is grows_in_turns:
        monkeypatch.setattr(growing_module, "GIVEN_AT_ONCE_MAX", 0)
    expected = joins(core, session)
    found = [(delivery.low, list(delivery.handles), delivery.nacks_taken) for delivery in core.deliveries(session)]
    assert sorted(found) == sorted(expected), "what had not left comes as it was, and the other one apart from it"


def given_again_soon(core: NacksDriver) -> Session:
    """A session whose ack timeout is over: what it was sent waits to be sent to it once more."""
    declared(core, "timed", ack_timeout_ms=TIMEOUT_MS)
    core.change(bind("timed", "t"), publish("t", b"x"))
    session = attached(core, "timed")
    assert told(core, session) == [(1, 0)]
    core.wait(2 * TIMEOUT_MS)
    core.pump()
    assert session.waiting
    return session


def test_a_copy_that_has_not_left_yet_comes_back_with_the_nack(core: NacksDriver) -> None:
    """The client takes a copy of before for what it gave back: it must not be all that is left of a message."""
    session = given_again_soon(core)
    core.frame(session, nacks(1, (1, 2), key=b"t"))
    assert told(core, session) == [(1, 1)]
    core.frame(session, wire.Nacks(messages=[wire.Ack(key=b"t", low=1, to=2, handles=[1])]))
    core.settle()
    assert told(core, session) == [(1, 1)], "it was sent: a nack of it has an effect"


def test_a_nack_without_a_number_leaves_what_waits_to_be_sent_again(core: NacksDriver) -> None:
    """Nobody was sent it: its client may have the copy of before no more, and would be given it out of its order."""
    session = given_again_soon(core)
    waiting = [parcel.number for parcel in session.waiting.values()]
    core.frame(session, wire.Nacks(messages=[wire.Ack(key=b"t", low=1, to=2, handles=[1])], unseen=True))
    core.pump()
    assert [parcel.number for parcel in session.waiting.values()] == waiting
    assert told(core, session) == [(1, 0)]


def test_a_frame_in_several_steps_tells_what_was_looked_at(core: NacksDriver) -> None:
    session = attached(core)
    told(core, session)
    many = wire.Ack(key=b"k", low=3, to=4, handles=range(100, 100 + 2 * ACKED_PER_STEP))
    frame = nacks(1, (1, 2))
    frame.messages.extend([many, wire.Ack(key=b"k", low=2, to=3, handles=[1])])
    core.frame(session, frame)
    last = 2 * ACKED_PER_STEP + 2
    assert told(core, session)[-1] == (2, last)


def test_only_unseen_nacks_of_a_session_have_numbers(core: NacksDriver) -> None:
    session = attached(core)
    with pytest.raises(Malformed, match="number"):
        core.frame(session, wire.Nacks(number=1))
    with pytest.raises(Malformed, match="number"):
        core.frame(session, nacks(1, (1, 2)), everyone=True)


def test_a_number_that_would_not_fit_is_refused(core: NacksDriver) -> None:
    session = attached(core)
    core.take(session)
    core.frame(session, nacks(1 << 62, (1, 2), (2, 3)))
    assert [taken for _, taken in told(core, session)] == [(1 << 62) + 1] * 2
    with pytest.raises(TooLarge, match="number of nacks"):
        core.frame(session, nacks((1 << 62) + 1, (1, 2)))


def test_numbers_are_kept_as_far_as_parcels_wait() -> None:
    taken = NacksTaken()
    rng = random.Random(5)
    waiting: list[tuple[int, int]] = []
    parcel = number = 0
    for _ in range(20_000):
        what = rng.random()
        if what < 0.4:
            parcel += rng.randint(1, 3)
            waiting.append((parcel, number))
        elif what < 0.7:
            number += rng.randint(1, 3)
            taken.add(number, waiting[-1][0] if waiting else 0)
        elif waiting:
            of, expected = waiting.pop(0)
            assert taken.before(of) == expected
        assert len(taken._later or ()) <= len(waiting) + 1
    taken.add(1, 0)
    assert taken.before(parcel + 1) == number, "they only grow"
