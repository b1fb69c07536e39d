"""Exclusive queues: one session consumes them, the newest or the oldest; the other is told, its other queues go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_contract.errors import Conflict, Malformed, ResourceExhausted
from shoal_contract.options import QueueOptions
from shoal_contract.wire import common_pb2
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import attach_room, attaching, ended_handles
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.limits import ATTACHED_PER_STEP, ATTACHMENT_BYTES, FEED_BYTES
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs.changes import parse_change

from .core_driver import CoreDriver, bind, declare, drop, publish

_OPENED: list[tuple[CoreDriver, Session]] = []
"""The sessions of the test that runs."""


@pytest.fixture(autouse=True)
def nothing_is_held() -> Iterator[None]:
    """At the end of each test all its sessions end: then nothing holds memory of attached queues any more."""
    _OPENED.clear()
    yield
    for core, session in _OPENED:
        if not session.closed:
            core.dispatcher.close(session)
    for core, _ in _OPENED:
        core.pump()
        assert core.dispatcher.shares.attached.used_bytes == 0


def exclusive(word: str, *queues: str) -> wire.Step:
    options = QueueOptions(exclusive=word).to_wire()
    return wire.Step(declares=wire.Declares(queues=[queue.encode() for queue in queues], options=options))


def made(word: str) -> CoreDriver:
    core = CoreDriver()
    core.change(exclusive(word, "q"), declare("other"), bind("q", "k"), bind("other", "k"))
    return core


def session_of(core: CoreDriver, owner: str) -> Session:
    session = core.node.new_session(1 << 20, owner.encode().rjust(16))
    _OPENED.append((core, session))
    return session


def told(session: Session) -> dict[int, str]:
    return {ended.handle: ended.error.message for ended in session.ended_handles.take(1000)}


def test_the_newest_takes_over_and_the_older_is_told() -> None:
    core = made("newest")
    old, new = session_of(core, "old"), session_of(core, "new")
    core.attach(old, "q", handle=7)
    core.attach(old, "other", handle=8)
    core.change(publish("k", b"1"))
    assert [list(found.handles) for found in core.deliveries(old)] == [[7, 8]]
    assert core.attach(new, "q")
    assert old.number in core.dispatcher.dirty and old.to_send
    (words,) = told(old).items()
    assert words[0] == 7 and "queue q is exclusive" in words[1] and "newer" in words[1]
    assert not told(new)
    assert core.take(new) == [("k", 1, b"1")], "what was unacked is given again"
    core.change(publish("k", b"2"))
    assert [(list(found.handles), found.low) for found in core.deliveries(old)] == [([8], 2)], "its other queues go on"
    assert [found.low for found in core.deliveries(new)] == [2]


@pytest.mark.parametrize("max_deliveries", [0, 3])
def test_a_take_over_counts_no_delivery(max_deliveries: int) -> None:
    """Three flips between two devices ended messages that no program was ever handed."""
    core = CoreDriver()
    options = QueueOptions(exclusive="newest", max_deliveries=max_deliveries)
    core.change(wire.Step(declares=wire.Declares(queues=[b"q"], options=options.to_wire())), bind("q", "k"))
    core.change(publish("k", b"1", b"2"))
    for number in range(5):
        session = core.session()
        core.attach(session, "q", 1)
        found = core.deliveries(session)
        assert [(one.low, one.to) for one in found] == [(1, 3)]
        assert [bool(one.redelivered) for one in found] == [bool(number and not max_deliveries)]
    core.dispatcher.close(session)
    core.pump()
    core.settle()
    session = core.session()
    core.attach(session, "q", 1)
    assert [bool(one.redelivered) for one in core.deliveries(session)] == [True], "a lost connection counts one"
    core.check()


def test_the_oldest_stays_and_the_newer_is_refused() -> None:
    core = made("oldest")
    old, new = session_of(core, "old"), session_of(core, "new")
    core.attach(old, "q")
    attach = wire.Attach(queues=[b"other", b"q"], handles=[1, 2])
    answer = finish(requests.attach(core.node, new, attach)()).attached
    assert all(answer.lives) and not answer.absent
    (words,) = told(new).items()
    assert words[0] == 2 and "came before" in words[1]
    core.change(publish("k", b"1"))
    assert core.take(old) == [("k", 1, b"1")]
    assert [list(found.handles) for found in core.deliveries(new)] == [[1]]
    core.dispatcher.detach(old, 1)
    assert core.attach(new, "q", handle=2)
    assert core.take(new) == [("k", 1, b"1")]
    core.check_served()


@pytest.mark.parametrize("word", ["newest", "oldest"])
def test_a_client_whose_connection_was_lost_takes_the_place_of_its_earlier_session(word: str) -> None:
    core = made(word)
    before, after = session_of(core, "same"), session_of(core, "same")
    core.attach(before, "q")
    assert core.attach(after, "q"), "the slice may not have noticed yet that the first connection is gone"
    assert not told(before) and not told(after)
    assert core.dispatcher.feeds
    (feed,) = core.dispatcher.feeds.values()
    assert [one.session for one in feed.attachments.values()] == [after]


@pytest.mark.parametrize("word", ["newest", "oldest"])
def test_a_session_that_ended_holds_nothing(word: str) -> None:
    core = made(word)
    old, new = session_of(core, "old"), session_of(core, "new")
    core.attach(old, "q")
    core.dispatcher.close(old)
    assert core.attach(new, "q")
    assert not told(new)


def test_a_client_that_comes_back_is_no_newer_than_the_one_that_came_meanwhile() -> None:
    core = made("newest")
    phone, tablet = session_of(core, "phone"), session_of(core, "tablet")
    core.attach(phone, "q")
    core.dispatcher.close(phone)
    core.attach(tablet, "q")
    again = session_of(core, "phone")
    assert not core.attach(again, "q")
    assert told(again) and not told(tablet)
    assert core.attach(again, "q"), "it was told, and asks anew"
    assert told(tablet)


@pytest.mark.parametrize("handed_out", [False, True])
def test_a_word_that_does_not_reach_a_client_does_not_make_it_new(handed_out: bool) -> None:
    """Its connection is lost, which the slice has not noticed when another client comes."""
    core = made("newest")
    phone, tablet = session_of(core, "phone"), session_of(core, "tablet")
    core.attach(phone, "q")
    core.attach(tablet, "q")
    assert phone.to_send
    if handed_out:
        assert told(phone)  # To a transport that cannot bring it.
    core.dispatcher.close(phone)
    for _ in range(2):  # The second time, the word of its return is lost too.
        again = session_of(core, "phone")
        assert not core.attach(again, "q")
        if handed_out:
            assert told(again)
        assert not told(tablet)
    if not handed_out:
        assert told(again)
    assert core.attach(again, "q") and told(tablet), "it was told, and asks anew"


@pytest.mark.parametrize("same_handle", [False, True])
def test_a_client_that_detaches_what_it_was_told_of_is_new_when_it_comes(same_handle: bool) -> None:
    core = made("newest")
    phone, tablet = session_of(core, "phone"), session_of(core, "tablet")
    core.attach(phone, "q", handle=7)
    core.attach(tablet, "q")
    assert told(phone)
    if same_handle:
        core.dispatcher.detach(phone, 7)
        core.dispatcher.close(phone)
        phone = session_of(core, "phone")
    assert core.attach(phone, "q", handle=8) and told(tablet)


def test_a_session_remembers_a_bounded_number_of_handles_of_which_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_handles, "ENDED_TOLD_MAX", 3)
    core = made("oldest")
    core.attach(session_of(core, "old"), "q")
    new = session_of(core, "new")
    for handle in range(9):
        core.attach(new, "q", handle=handle)
        assert told(new)
    assert list(new.ended_handles._told) == [6, 7, 8]


def test_who_consumed_a_queue_is_remembered_for_a_bounded_number_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_slice_node.core.dispatch.exclusive.EXCLUSIVES_REMEMBERED_MAX", 1)
    core = made("newest")
    core.change(exclusive("newest", "another"))
    phone, tablet = session_of(core, "phone"), session_of(core, "tablet")
    core.attach(phone, "q")
    core.dispatcher.close(phone)
    core.attach(session_of(core, "x"), "another")
    core.attach(tablet, "q")
    assert core.attach(session_of(core, "phone"), "q") and told(tablet)


def test_a_client_that_left_by_itself_is_new_when_it_comes() -> None:
    core = made("newest")
    phone, tablet = session_of(core, "phone"), session_of(core, "tablet")
    core.attach(phone, "q")
    core.dispatcher.detach(phone, 1)
    core.attach(tablet, "q")
    assert core.attach(phone, "q")
    assert told(tablet)


def test_sessions_that_wait_for_the_queue_get_it_in_their_order() -> None:
    for word, winner in (("newest", 1), ("oldest", 0)):
        core = CoreDriver()
        sessions = [session_of(core, "a"), session_of(core, "b")]
        for session in sessions:
            core.attach(session, "q")
        core.change(exclusive(word, "q"), bind("q", "k"), publish("k", b"1"))
        core.pump()
        assert [bool(told(session)) for session in sessions] == [winner == 1, winner == 0]
        assert core.take(sessions[winner]) == [("k", 1, b"1")]


def test_pulls_are_refused_while_a_session_has_it_attached() -> None:
    core = made("newest")
    old, puller = session_of(core, "old"), session_of(core, "puller")
    core.attach(old, "q")
    core.change(publish("k", b"1"))
    pull = wire.Pull(queue=b"q", messages_max=1)
    with pytest.raises(Conflict, match="queue q is exclusive"):
        finish(requests.pull(core.node, puller, pull, 0, 1000).whole())
    peek = wire.Pull(queue=b"q", messages_max=1, peek=True)
    assert finish(requests.pull(core.node, puller, peek, 0, 1000).whole()).pulled.deliveries
    core.dispatcher.close(old)
    core.pump()
    assert finish(requests.pull(core.node, puller, pull, 0, 1000).whole()).pulled.deliveries


def test_an_attach_that_is_refused_takes_no_exclusive_queue() -> None:
    """The holder was told that another session consumes the queue, and none did."""
    core = made("newest")
    holder, other = session_of(core, "holder"), session_of(core, "other")
    core.attach(holder, "q", 1)
    core.attach(other, "other", 4)
    with pytest.raises(Conflict, match="queue other attached already"):
        finish(requests.attach(core.node, other, wire.Attach(queues=[b"q", b"other"], handles=[5, 6]))())
    assert list(holder.attachments) == [1] and not told(holder) and list(other.attachments) == [4]
    core.change(publish("k", b"1"))
    assert core.take(holder) == [("k", 1, b"1")]


def test_a_session_that_took_a_queue_and_then_found_no_room_ends() -> None:
    """Others took the room while its frame was worked on: it may not keep half of the frame, nor say that nothing
    changed."""
    core = CoreDriver()
    names = [f"q{number}" for number in range(2 * ATTACHED_PER_STEP)]
    core.change(exclusive("newest", "q"), declare(*names, "r"))
    core.restart(DispatchShares(attached_bytes=(len(names) + 2) * (ATTACHMENT_BYTES + FEED_BYTES)))
    holder, session, third = (session_of(core, name) for name in ("holder", "session", "third"))
    core.attach(holder, "q", 1)
    frame = wire.Attach(queues=[b"q", *(name.encode() for name in names)], handles=range(1, len(names) + 2))
    work = requests.attach(core.node, session, frame)()
    while not told(holder):
        next(work)
    for handle, name in enumerate(["r", *names[-2:]], 1):
        core.attach(third, name, handle)
    with pytest.raises(ResourceExhausted):
        finish(work)
    assert session.ended_by is not None


def test_what_was_ended_is_not_told_of_a_handle_that_is_used_anew() -> None:
    core = made("oldest")
    old, new = session_of(core, "old"), session_of(core, "new")
    core.attach(old, "q")
    core.attach(new, "q")
    core.attach(new, "other")
    assert not told(new)


def test_a_session_that_reads_nothing_is_refused_at_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    core = made("oldest")
    old, new = session_of(core, "old"), session_of(core, "new")
    core.attach(old, "q")
    monkeypatch.setattr(attach_room, "ENDED_UNREAD_MAX", 3)
    for handle in range(3):
        core.attach(new, "q", handle=handle)
    with pytest.raises(ResourceExhausted, match="has not read"):
        core.attach(new, "q", handle=9)
    assert len(told(new)) == 3
    core.attach(new, "q", handle=9)


def test_a_session_that_reads_nothing_and_loses_too_many_queues_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "ENDED_LOST_MAX", 3)
    names = [f"lost{number}" for number in range(6)]
    core = CoreDriver()
    core.change(exclusive("newest", *names))
    silent, reads, new = (session_of(core, name) for name in ("silent", "reads", "new"))
    for handle, name in enumerate(names):
        core.attach(silent, name, handle=handle)
    share = core.dispatcher.shares.attached
    full_bytes = share.used_bytes
    for handle, name in enumerate(names):
        core.attach(reads, name, handle=handle)
        taken_bytes = (handle + 1) * ATTACHMENT_BYTES
        assert share.used_bytes <= full_bytes + taken_bytes, "what was lost takes no more than what was attached"
    assert len(silent.ended_handles) == 4 and core.dispatcher.dirty
    assert silent.ended_by is not None and "has not read: 4; the limit is 3" in silent.ended_by.message
    for handle, name in enumerate(names):
        core.attach(new, name, handle=handle)
        assert list(told(reads)) == [handle], "a session that reads goes on"
    assert reads.ended_by is None
    core.dispatcher.close(silent)
    core.dispatcher.close(reads)
    core.dispatcher.close(new)
    core.pump()
    assert share.used_bytes == 0


def test_a_queue_that_is_dropped_and_made_anew_many_times_is_told_once_to_a_session_that_reads_nothing() -> None:
    core = made("oldest")
    silent = session_of(core, "silent")
    core.attach(silent, "q")
    for _ in range(5):
        core.change(drop("q"), declare("q"))
        core.pump()
    assert silent.ended_handles.take(10) == [] and silent.resets.take(10) == [1] and not silent.resets


def test_after_a_drop_the_next_life_has_its_own_options() -> None:
    core = made("oldest")
    old, new = session_of(core, "old"), session_of(core, "new")
    core.attach(old, "q")
    core.change(drop("q"), declare("q"))
    core.pump()
    assert core.attach(new, "q") and not told(new)


def test_options_are_checked_and_kept() -> None:
    core = made("newest")
    (refusal,) = core.change(declare("q")).steps[0].refusals
    assert "exclusive=newest, not none" in refusal.error.message
    unknown = common_pb2.QueueOptions(exclusive=7)  # type: ignore[arg-type]
    step = wire.Step(declares=wire.Declares(queues=[b"x"], options=unknown))
    with pytest.raises(Malformed, match="exclusive is 7"):
        parse_change(wire.Change(steps=[step]).SerializeToString())
    core.check()
