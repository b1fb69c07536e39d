"""For what finds no room in the memory of attached queues ranges above their half make some, once, and only if that may
help."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.dispatch import attach_room
from shoal_slice_node.core.limits import RANGE_BYTES, RANGES_PART
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.node.limited_binds import check_imports, limit_binds
from shoal_slice_node.core.verbs.changes import parse_change

from .core_driver import CoreDriver, bind, declare
from .relief_steps import consumed, ended, limit_to, queue, relieve


def attach_small(core: CoreDriver) -> None:
    core.change(declare("small"))
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        core.attach(core.session(), "small")


def attach_wide(core: CoreDriver) -> None:
    """More than a share of the size that the tests have can ever hold."""
    core.change(declare("wide"))
    for part in "ab":
        core.change(bind("wide", *(f"{part}-{number}" for number in range(900))))
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        core.attach(core.session(), "wide")


def pull_from_a_large_one(core: CoreDriver) -> None:
    core.change(declare("large"), bind("large", "k1", "k2", "k3"))
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        core.pull(core.session(), "large", 1)


def pull_many_ranges(core: CoreDriver) -> None:
    queue(core, "p", 1000)
    core.dispatcher.shares.attached.hold(1)
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        core.pull(core.session(), "p", 1)


def bind_consumed(core: CoreDriver) -> None:
    data = wire.Change(steps=[bind("0-1", "new")]).SerializeToString()
    payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
    item = Item(Kind.CHANGE, payload, lambda _: None, lambda _: None, parse_change(data))
    limit_binds(core.dispatcher.registry, item)
    assert item.payload != payload


def import_(core: CoreDriver) -> None:
    with pytest.raises(ResourceExhausted, match="no room for more bindings"):
        check_imports(core.dispatcher.registry, wire.Imports(queues=[b"0-1"]))


def watch(core: CoreDriver) -> None:
    with pytest.raises(ResourceExhausted, match="memory of attached queues and watches"):
        core.node.watching.watch(wire.WatchRequest(members=b"k"), "a")


@pytest.mark.parametrize(
    ("refuse", "ends"),
    [
        (attach_small, True),
        (attach_wide, False),
        (pull_from_a_large_one, True),
        (pull_many_ranges, False),
        (bind_consumed, True),
        (import_, True),
        (watch, True),
    ],
)
def test_what_ranges_could_make_room_for_ends_a_session_and_what_has_too_many_itself_does_not(
    monkeypatch: pytest.MonkeyPatch, refuse: Callable[[CoreDriver], None], ends: bool
) -> None:
    monkeypatch.setattr(attach_room, "INLINE_STREAMS_MAX", 2)
    core = CoreDriver()
    sessions = consumed(core, [3000] * 2, [3000])
    limit_to(core, 1)
    refuse(core)
    relieve(core)
    assert ended(*sessions) == [ends, False]


@pytest.mark.parametrize("refuse", [attach_small, attach_wide])
def test_what_was_refused_once_ends_no_session_later(refuse: Callable[[CoreDriver], None]) -> None:
    """A refused attach was remembered for hours, until ranges were above their half and nobody wanted memory."""
    core = CoreDriver()
    sessions = consumed(core, [10], [900])
    share, room = core.dispatcher.shares.attached, core.dispatcher.registry.range_room
    limit_to(core, 6)
    others_bytes = share.free_bytes
    share.hold(others_bytes)
    refuse(core)
    relieve(core)
    share.let_go(others_bytes)
    sessions.append(core.session())
    queue(core, "later", 4000)
    core.attach(sessions[-1], "later")
    core.pump()
    share.hold(share.free_bytes - 1)
    assert room.ranges_bytes > share.limit_bytes // RANGES_PART
    relieve(core)
    assert ended(*sessions) == [False, False, False]


def test_after_a_look_ranges_may_overdraw_the_share_a_little_again() -> None:
    """Each later look would have ended more, for an attach that has its room."""
    core = CoreDriver()
    sessions = consumed(core, [320], *[[300]] * 12)
    limit_to(core, 1)
    attach_small(core)
    relieve(core)
    assert ended(*sessions) == [True] + [False] * 12
    limit_to(core, 32 / 33)
    relieve(core)
    assert ended(*sessions) == [True] + [False] * 12


def test_a_session_is_told_which_ranges_ended_it_and_what_to_do() -> None:
    """It read `memory of attached queues, bytes: 365165; the limit is 366165`."""
    core = CoreDriver()
    (session, _) = consumed(core, [3000], [900])
    limit_to(core, 1.03)
    share = core.dispatcher.shares.attached
    share.hold(share.free_bytes - 1000)
    attach_small(core)
    relieve(core)
    error = session.ended_by
    assert isinstance(error, ResourceExhausted) and error.subject == "memory of done ranges, bytes"
    assert error.value == 3900 * RANGE_BYTES > error.limit == share.limit_bytes // RANGES_PART
    assert f"have {3000 * RANGE_BYTES} of it" in error.message and error.message.endswith("ack in order")
