"""Handles that are used again while parcels wait that name them: each parcel is for the queue that it was given to."""

from __future__ import annotations

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import detached_handles, sessions
from shoal_slice_node.core.dispatch.detached_handles import DetachedHandles
from shoal_slice_node.core.dispatch.parcels import Parcel
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.limits import ATTACHMENT_BYTES, FEED_BYTES, STREAM_BYTES
from shoal_slice_node.core.node import requests

from .core_driver import CoreDriver, bind, declare, drop, publish

NAMES = [f"q{number}" for number in range(30)]


@pytest.fixture
def core() -> CoreDriver:
    core = CoreDriver()
    core.change(declare(*NAMES, "other"), *(bind(name, "k") for name in NAMES), bind("other", "other"))
    return core


def waiting(core: CoreDriver, messages: int) -> Session:
    session = core.session(64 << 20)
    for handle, name in enumerate(NAMES, 1):
        core.attach(session, name, handle, 100_000, 64 << 20)
    core.change(*[publish("k", b"x")] * messages)
    core.pump()
    assert len(session.waiting) == messages
    return session


def sent(core: CoreDriver, session: Session) -> list[wire.Delivery]:
    found: list[wire.Delivery] = []
    while session.waiting:
        taken = core.dispatcher.take(session, 1 << 20)
        core.dispatcher.sent(session, taken.cost_bytes)
        found += taken.deliveries
    return found


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parcels were looked at, one number for each step."""
    found = [0]
    take_out = DetachedHandles.take_out

    def counted(detached: DetachedHandles, key_id: bytes, parcel: Parcel) -> int:
        found[-1] += 1
        return take_out(detached, key_id, parcel)

    monkeypatch.setattr(DetachedHandles, "take_out", counted)
    return found


def test_a_frame_that_uses_handles_again_looks_through_nothing_that_waits(core: CoreDriver, looks: list[int]) -> None:
    """100 handles and 4,096 parcels were one step of 0.5 s."""
    session = waiting(core, 200)
    names = NAMES[1:] + NAMES[:1]
    first = wire.Detach(handles=range(1, len(NAMES) + 1))
    for work in (
        requests.detach(core.node, session, first)(),
        requests.attach(
            core.node, session, wire.Attach(queues=[name.encode() for name in names], handles=first.handles)
        )(),
    ):
        for _ in work:
            pass
    assert looks == [0]
    core.pump()
    core.settle()
    found = [(one.low, sorted(one.handles)) for one in sent(core, session)]
    assert found == [(offset, list(first.handles)) for offset in range(1, 201)], "what waited was for other queues"
    assert core.state.counters.deliveries == 200 * len(NAMES)
    core.check()


def test_a_parcel_is_for_the_queue_that_its_handle_meant(core: CoreDriver) -> None:
    """One handle means three queues one after the other, while what each was given waits."""
    session = core.session(64 << 20)
    for number, name in enumerate(NAMES[:3], 1):
        core.attach(session, name, 1)
        core.attach(session, "other", 2)
        core.pump()
        core.change(publish("k", b"x"), publish("other", b"y"))
        core.pump()
        assert number <= len(session.waiting)
    found = [(one.key, one.low, list(one.handles)) for one in core.deliveries(session)]
    assert [offset for key, offset, handles in found if handles == [1]] == [1, 2, 3], "the third queue has all three"
    assert sorted(offset for key, offset, handles in found if handles == [2]) == [1, 2, 3]
    core.dispatcher.close(session)
    core.pump()
    core.settle()
    for name in NAMES[:2]:
        late = core.session()
        core.attach(late, name)
        assert [(one.low, one.to, one.redelivered) for one in core.deliveries(late)] == [
            (1, 2, 0),
            (2, 3, 0),
            (3, 4, 0),
        ]


def test_what_waits_of_each_of_three_queues_of_one_handle_was_not_sent(core: CoreDriver) -> None:
    """So many parcels wait that what left comes back in turns, after these were sent to nobody."""
    core.change(declare("third"), bind("third", "third"))
    session = waiting(core, 60)
    core.attach(session, "other", 1)
    core.change(publish("other", b"x"))
    core.attach(session, "third", 1)
    core.dispatcher.sent(session, core.dispatcher.take(session, 1 << 30).cost_bytes)
    core.pump()
    core.settle()
    for name, messages in (NAMES[0], 60), ("other", 1):
        late = core.session(64 << 20)
        core.attach(late, name, 1, 100_000, 64 << 20)
        found = [(offset, one.redelivered) for one in core.deliveries(late) for offset in range(one.low, one.to)]
        assert found == [(offset, 0) for offset in range(1, messages + 1)]


def test_live_messages_that_wait_are_not_noted_as_not_sent(core: CoreDriver) -> None:
    """Their offsets are those of messages that were sent."""
    session = waiting(core, 60)
    (sent_one,) = core.dispatcher.take(session, 1).deliveries
    late = core.session(64 << 20)
    core.attach(late, NAMES[0], 1, 100_000, 64 << 20)
    core.live(publish("k", *[b"l"] * 5, live=True))
    core.attach(session, "other", 1)
    core.dispatcher.sent(session, core.dispatcher.take(session, 1 << 30).cost_bytes)
    core.pump()
    core.settle()
    stored = [one for one in core.deliveries(late) if not one.live]
    found = {offset: one.redelivered for one in stored for offset in range(one.low, one.to)}
    assert found == {offset: int(offset < sent_one.to) for offset in range(1, 61)}


def test_a_session_whose_handles_come_and_go_remembers_no_more_than_waits(core: CoreDriver) -> None:
    session = waiting(core, 5)
    for number in range(40):
        core.attach(session, ("other", NAMES[0])[number % 2], 1)
        core.change(publish("k", b"x"), publish("other", b"y"))
        core.pump()
        while len(session.waiting) > 1:
            core.dispatcher.sent(session, core.dispatcher.take(session, 1).cost_bytes)
        assert session.detached.noted <= 2


def test_a_queue_that_is_dropped_and_declared_anew_gets_nothing_of_its_former_life(
    core: CoreDriver, looks: list[int]
) -> None:
    session = waiting(core, 100)
    for _ in range(3):
        core.change(drop(*NAMES))
        core.change(declare(*NAMES))
        core.pump()
    assert looks == [0]
    core.change(*(bind(name, "k") for name in NAMES), publish("k", b"new"))
    core.pump()
    assert [(one.low, len(one.handles)) for one in sent(core, session)] == [(101, len(NAMES))]
    assert session.under_way_bytes == 0
    core.check()


def test_what_is_remembered_of_handles_is_bounded(core: CoreDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "DETACHED_NOTED_MAX", 20)
    monkeypatch.setattr(detached_handles, "DETACHED_LOOKS_PER_STEP", 600)
    session = waiting(core, 5)
    for number in range(100):
        core.attach(session, ("other", NAMES[0])[number % 2], 1)
        core.change(publish("k", b"x"), publish("other", b"y"))
        core.pump()
        assert session.detached.noted <= 60
    core.attach(session, "other", 1)
    core.pump()
    of_handle = [one for one in sent(core, session) if 1 in one.handles]
    found = [offset for one in of_handle for offset in range(one.low, one.to)]
    assert sorted(found) == list(range(1, 101)) and {one.key for one in of_handle} == {b"other"}
    assert not session.detached and session.under_way_bytes == 0
    core.dispatcher.close(session)
    core.settle()
    assert core.dispatcher.shares.attached.used_bytes == 0


def test_few_of_many_parcels_that_lost_their_handles_are_passed_over_at_a_time(
    core: CoreDriver, monkeypatch: pytest.MonkeyPatch, looks: list[int]
) -> None:
    """1,460 parcels of 1,000 handles each were passed over in one step of 2.7 s."""
    for module in sessions, detached_handles:
        monkeypatch.setattr(module, "DETACHED_LOOKS_PER_STEP", 30 * (1 + len(NAMES)))
    session = waiting(core, 100)
    for handle in range(1, len(NAMES) + 1):
        core.dispatcher.detach(session, handle)
    takes = 0
    while session.waiting:
        looks.append(0)
        assert core.dispatcher.take(session, 1 << 20).deliveries == []
        takes += 1
    assert takes == 4 and max(looks) == 30 and session.under_way_bytes == 0


def test_a_sweep_that_is_not_gone_on_with_keeps_nothing_that_was_sent(
    core: CoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept each parcel with its chunk, up to a session's whole window, for as long as anything waited."""
    monkeypatch.setattr(sessions, "DETACHED_NOTED_MAX", 0)
    monkeypatch.setattr(detached_handles, "DETACHED_LOOKS_PER_STEP", 1)
    session = waiting(core, 20)
    core.attach(session, "other", 1)
    assert session.detached._to_sweep is not None
    core.dispatcher.sent(session, core.dispatcher.take(session, 1).cost_bytes)
    while len(session.waiting) > 1:
        core.dispatcher.sent(session, core.dispatcher.take(session, 1).cost_bytes)
    core.change(publish("k", b"x"))
    core.pump()
    core.dispatcher.sent(session, core.dispatcher.take(session, 1).cost_bytes)
    assert session.waiting and not session.detached
    assert session.detached._to_sweep is None


def test_a_handle_that_is_detached_behind_a_sweep_is_not_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep had passed its parcel while it was attached: what was for one queue came to another one."""
    monkeypatch.setattr(sessions, "DETACHED_NOTED_MAX", 0)
    monkeypatch.setattr(detached_handles, "DETACHED_LOOKS_PER_STEP", 1)
    core = CoreDriver()
    core.change(declare("a", "b", "c", "d", "e"), bind("a", "ka"), bind("b", "kb"))
    session = core.session()
    core.attach(session, "a", 3)
    core.attach(session, "b", 2)
    core.change(publish("ka", b"for a"), publish("kb", b"for b"))
    for queue, handle in ("c", 2), ("d", 3), ("e", 2), ("c", 2):
        core.attach(session, queue, handle)
    assert core.deliveries(session) == [], "neither is for a queue that the session has attached now"


def test_handles_that_can_be_forgotten_together_are_forgotten_in_steps(
    core: CoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """180,000 were forgotten in one step of 12 s."""
    monkeypatch.setattr(detached_handles, "DETACHED_FORGOTTEN_PER_STEP", 4)
    session = waiting(core, 3)
    for handle in range(2, len(NAMES) + 1):
        core.dispatcher.detach(session, handle)
    before = core.dispatcher.shares.attached.used_bytes
    core.change(publish("k", b"later"))
    core.pump()
    for _ in range(3):
        core.dispatcher.sent(session, core.dispatcher.take(session, 1).cost_bytes)
    assert session.waiting, "the last one names none of them"
    noted = [session.detached.noted]
    while core.dispatcher.has_work:
        core.dispatcher.turn()
        noted.append(session.detached.noted)
    assert noted == [25, 21, 17, 13, 9, 5, 1, 0]
    assert not session.detached
    assert before - core.dispatcher.shares.attached.used_bytes == 29 * ATTACHMENT_BYTES


@pytest.mark.parametrize("closes", [False, True])
def test_handles_are_forgotten_in_steps_though_nothing_waits_any_more(
    core: CoreDriver, monkeypatch: pytest.MonkeyPatch, closes: bool
) -> None:
    monkeypatch.setattr(detached_handles, "DETACHED_FORGOTTEN_PER_STEP", 10)
    session = waiting(core, 1)
    for handle in range(2, len(NAMES) + 1):
        core.dispatcher.detach(session, handle)
    core.dispatcher.sent(session, core.dispatcher.take(session, 1 << 20).cost_bytes)
    assert not session.waiting and session.detached.noted == 19
    if closes:
        core.dispatcher.close(session)
        assert session.detached.noted == 0 and len(session.detached._former) == 9, "ten were forgotten at once"
    else:
        core.attach(session, NAMES[1], 2)
    core.settle()
    assert session.detached.noted == 0 and not session.detached
    if not closes:
        core.change(publish("k", b"new"))
        core.pump()
        assert [(one.low, list(one.handles)) for one in sent(core, session)] == [(1, [2]), (2, [1, 2])]


def test_a_sweep_ends_in_steps(core: CoreDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end looked at all former attachments in one step."""
    monkeypatch.setattr(sessions, "DETACHED_NOTED_MAX", 10)
    monkeypatch.setattr(detached_handles, "DETACHED_FORGOTTEN_PER_STEP", 4)
    session = waiting(core, 2)
    for handle in range(2, len(NAMES) + 1):
        core.dispatcher.detach(session, handle)
    core.attach(session, "other", 2)
    noted = [session.detached.noted]
    while core.dispatcher.has_work:
        core.dispatcher.turn()
        noted.append(session.detached.noted)
    assert noted == [25, 21, 17, 13, 9, 5, 1, 0] and len(session.waiting) == 2


def test_few_of_many_parcels_are_swept_at_a_time(
    core: CoreDriver, monkeypatch: pytest.MonkeyPatch, looks: list[int]
) -> None:
    """Parcels of 1,000 handles each cost as much as that."""
    monkeypatch.setattr(sessions, "DETACHED_NOTED_MAX", 0)
    monkeypatch.setattr(detached_handles, "DETACHED_LOOKS_PER_STEP", 20 * (1 + len(NAMES)))
    session = waiting(core, 100)
    for _ in range(6):
        looks.append(0)
        core.attach(session, "other", 1)
    assert looks == [0, 20, 20, 20, 20, 20, 0]


def test_a_handle_that_is_used_again_all_the_time_is_remembered_as_often_as_parcels_wait(core: CoreDriver) -> None:
    """What was sent long ago stayed noted for as long as the handle was used again before the rest had left."""
    core.change(declare(*(f"e{number}" for number in range(50))))
    session = waiting(core, 5)
    for number in range(50):
        core.attach(session, f"e{number}", 1)
        core.change(publish("k", b"x"))
        core.pump()
        while len(session.waiting) > 5:
            core.dispatcher.sent(session, core.dispatcher.take(session, 1).cost_bytes)
        assert session.detached.noted <= 6
    assert core.dispatcher.shares.attached.used_bytes < 100 * (FEED_BYTES + STREAM_BYTES + ATTACHMENT_BYTES)


def test_all_handles_are_forgotten_once_nothing_waits_though_parcels_were_withdrawn() -> None:
    """One that was detached with a parcel in wait that was withdrawn then stayed, and all that were detached later: as
    long as nothing more was sent, and after the session's end for ever."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    session, share = core.session(), Share("attached", 1 << 20)
    core.attach(session, "q")
    detached, attachment = DetachedHandles(share), session.attachments[1]
    for handle, last_parcel in ((1, 10), (2, 12), (3, 10), (1, 10)):
        detached.note(handle, attachment, last_parcel)
    assert [former[-1].last_parcel for former in detached._former.values()] == [10, 12, 12]
    detached.forget_sent(10)
    assert list(detached._former) == [2, 3]
    detached.forget_sent(10, nothing_waits=True)
    assert not detached and share.used_bytes == 0
