"""Options at their edges and one past them, and requests in a wrong state: refused by name, or without effect.

Belongs here: what has no better place. The bounds of one verb are tested with that verb.
"""

from __future__ import annotations

from typing import Any

import pytest

from shoal_contract.errors import Conflict, OutOfRange
from shoal_contract.limits import U32_MAX
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_slice_node.core.dispatch.exclusive import Exclusive
from shoal_slice_node.core.limits import OWNERS_REMEMBERED_MAX

from .core_driver import acks, bind, configure, declare, drop, publish, unbind
from .dead_letters_driver import DeadLettersDriver, declare_with
from .nacks_driver import attached


@pytest.fixture
def core() -> DeadLettersDriver:
    core = DeadLettersDriver()
    core.change(declare("q"), bind("q", "k"))
    return core


@pytest.mark.parametrize(
    "options", [QueueOptions(expires_after_s=U32_MAX), QueueOptions(ack_timeout_ms=U32_MAX)], ids=["expiry", "timeout"]
)
def test_the_longest_times_are_taken_and_nothing_ends_early(core: DeadLettersDriver, options: QueueOptions) -> None:
    core.change(declare_with("long", options), bind("long", "k"), publish("k", b"x"))
    session = attached(core, "long")
    assert core.times(session) == [(1, 0)]
    core.now_ms += U32_MAX - 1_000
    core.maintain()
    assert core.times(session) == [], "its time is not over"
    core.dispatcher.close(session)
    core.maintain()
    assert core.tables.queue_by_name.get(b"long") is not None
    core.check()


LARGEST = (1 << 53) - 1


def _with(name: str, value: int) -> KeyOptions:
    options: dict[str, Any] = {name: value}
    return KeyOptions(**options)


@pytest.mark.parametrize("name", ["history_messages", "capacity_messages", "capacity_bytes"])
def test_options_of_keys_are_taken_up_to_their_bound(core: DeadLettersDriver, name: str) -> None:
    core.change(configure("k", _with(name, LARGEST)), publish("k", b"x"))
    session = attached(core)
    assert core.take(session) == [("k", 1, b"x")]
    core.check()
    with pytest.raises(OutOfRange, match=f"{name} is {LARGEST + 1}"):
        core.change(configure("k", _with(name, LARGEST + 1)))


def test_an_owner_is_remembered_until_too_many_came_after_it() -> None:
    owners = [b"%016d" % number for number in range(OWNERS_REMEMBERED_MAX + 1)]
    exclusive = Exclusive(newest=True)
    for owner in owners[:-1]:
        exclusive.took(owner)
    assert not exclusive.newer(owners[0], owners[1])
    exclusive.took(owners[-1])
    assert exclusive.newer(owners[0], owners[1]), "it is forgotten, so it is new"
    assert not exclusive.newer(owners[1], owners[2])


def test_a_queue_is_attached_once_in_a_session_whatever_the_handle(core: DeadLettersDriver) -> None:
    session = attached(core)
    with pytest.raises(Conflict, match="q"):
        core.attach(session, "q", handle=2)
    core.change(publish("k", b"x"))
    assert core.take(session) == [("k", 1, b"x")]
    assert core.attach(session, "q"), "under its own handle it begins anew"
    assert core.times(session) == [(1, 1)]


def test_what_was_given_back_or_never_given_cannot_be_settled_again(core: DeadLettersDriver) -> None:
    one = attached(core)
    core.change(publish("k", b"a"), publish("k", b"b"))
    assert core.times(one) == [(1, 0), (2, 0)]
    other = attached(core)
    core.nack(one, 1, 2, delay_ms=500)
    core.nack(one, 1, 2)
    core.ack(one, "k", 1, 2)
    core.nack(other, 2, 3)
    core.ack(other, "k", 2, 3)
    core.dispatcher.detach(other, 1)
    core.flush()
    assert core.times(one) == [], "it rests, and the other one is out"
    core.wait(2_000)
    assert core.times(one) == [(1, 1)]
    core.ack(one, "k", 1, 3)
    core.flush()
    assert core.change(acks(("q", "k", 1, 2))).steps[0].refusals, "it is done"
    assert core.change(acks(("q", "k", 9, 10))).steps[0].refusals, "it does not exist"
    assert not core.change(unbind("q", "never bound")).steps[0].refusals
    assert list(core.change(unbind("q", "never bound")).steps[0].offsets) == [0]
    core.check()


def test_a_drop_ends_what_sessions_have_of_the_queue_and_of_no_other(core: DeadLettersDriver) -> None:
    core.change(declare("other"), bind("other", "k"), publish("k", b"a"))
    session = core.session()
    core.attach(session, "q", 1)
    core.attach(session, "other", 2)
    core.take(session)
    core.change(drop("q"))
    core.nack(session, 1, 2)
    core.ack(session, "k", 1, 2)
    core.change(publish("k", b"b"))
    assert [list(one.handles) for one in core.deliveries(session)] == [[2]]
    core.nack(session, 1, 3, handle=2)
    assert core.times(session) == [(1, 1), (2, 1)], "the other queue has all it had"
    core.check_served()
    core.check()
