"""What waited for a session that ended: it counts until it is freed, and a large session that ended before keeps no
other from being freed."""

from __future__ import annotations

import pytest

from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import PARCEL_OVERHEAD_BYTES

from .core_driver import CoreDriver, bind, declare, publish

HANDLES = 20_000
SIZE = 10_000
CHUNKS = 1_000


def left_behind(core: CoreDriver, handles: int) -> Session:
    """Returns a session for which CHUNKS chunks wait, with so many handles besides."""
    session = core.session(window_bytes=1 << 30)
    assert core.attach(session, "q", messages=CHUNKS, size=1 << 30)
    for handle in range(2, handles + 2):
        core.dispatcher.attach(session, b"none %d" % handle, handle, 1, 1)
    core.pump()
    assert len(session.waiting) == CHUNKS
    return session


@pytest.fixture
def core() -> CoreDriver:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    core.change_all(publish("k", b"x" * SIZE) for _ in range(CHUNKS))
    return core


def test_what_waited_counts_until_it_is_freed(core: CoreDriver) -> None:
    """It was uncounted from the first moment, and others took its room."""
    dispatcher, share = core.dispatcher, core.dispatcher.shares.deliveries
    session = left_behind(core, HANDLES)
    held_bytes, parcels = share.used_bytes, list(session.waiting.values())
    assert held_bytes > CHUNKS * SIZE
    dispatcher.close(session)
    assert share.used_bytes == held_bytes
    while dispatcher.has_work:
        dispatcher.turn()
        chunks_bytes = sum(len(parcel.chunk) for parcel in parcels)
        if session in dispatcher.attaching.closing or session.owed:
            assert share.used_bytes >= chunks_bytes + CHUNKS * PARCEL_OVERHEAD_BYTES
    assert share.used_bytes == session.under_way_bytes == dispatcher.shares.holding == 0


def test_what_waited_is_freed_while_a_large_session_that_ended_before_is_taken_apart(core: CoreDriver) -> None:
    """It was kept for seconds behind it."""
    dispatcher, share = core.dispatcher, core.dispatcher.shares.deliveries
    large = core.session()
    for handle in range(1, HANDLES):
        dispatcher.attach(large, b"large %d" % handle, handle, 1, 1)
    session = left_behind(core, 60)  # So many handles are not detached at once.
    parcels = list(session.waiting.values())
    dispatcher.close(large)
    dispatcher.close(session)
    turns = 0
    while share.used_bytes or any(parcel.chunk for parcel in parcels):
        dispatcher.turn()
        turns += 1
    assert turns < 60 and len(large.by_queue) > HANDLES // 2


def test_what_a_session_of_live_chunks_left_behind_counts_no_more_once_it_is_listed(core: CoreDriver) -> None:
    """They are not owed, and nothing of them is kept."""
    session = core.session(window_bytes=1 << 30)
    core.change(declare("other"), bind("other", "live"))
    assert core.attach(session, "other")
    core.pump()
    for _ in range(CHUNKS):
        core.live(publish("live", b"x" * SIZE, live=True))
    core.pump()
    assert len(session.waiting) == CHUNKS
    core.dispatcher.close(session)
    core.pump()
    assert core.dispatcher.shares.deliveries.used_bytes == 0 and not session.not_sent.not_listed
