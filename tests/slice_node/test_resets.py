"""Resets that a client is still to be told, of handles that it detached meanwhile: they count in memory."""

from __future__ import annotations

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.core.dispatch.shares import DispatchShares, Share
from shoal_slice_node.core.limits import ATTACHMENT_BYTES, RESET_BYTES

from .core_driver import CoreDriver, declare, drop


@pytest.fixture
def core() -> CoreDriver:
    return CoreDriver()


def share_of(core: CoreDriver) -> Share:
    return core.dispatcher.shares.attached


def test_a_detached_handle_that_is_to_be_told_counts_until_it_is(core: CoreDriver) -> None:
    """Without bound or charge, a client that did not read kept 200 MB of them behind 6 MB of answers."""
    session = core.session()
    for handle in range(1, 101):
        core.change(declare("q"))
        core.attach(session, "q", handle)
        core.change(drop("q"))
        core.dispatcher.detach(session, handle)
        core.dispatcher.detach(session, handle)
    assert share_of(core).used_bytes == 100 * RESET_BYTES
    assert session.resets.take(30) == list(range(1, 31)), "the client counts each"
    assert share_of(core).used_bytes == 70 * RESET_BYTES
    core.dispatcher.close(session)
    core.pump()
    assert share_of(core).used_bytes == 0 == session.resets.counted and not session.resets


def test_a_handle_in_use_counts_as_what_is_attached_only(core: CoreDriver) -> None:
    """A dropped queue's consumers wait for the next one: none of them may end because of it."""
    core.change(declare("q"))
    core.restart(DispatchShares(attached_bytes=10 * ATTACHMENT_BYTES))
    sessions = [core.session() for _ in range(8)]
    for session in sessions:
        core.attach(session, "q")
    core.change(drop("q"), declare("q"), drop("q"))
    core.pump()
    assert share_of(core).used_bytes == len(sessions) * ATTACHMENT_BYTES
    assert all(list(session.resets) == [1] and session.ended_by is None for session in sessions)
    core.dispatcher.detach(sessions[0], 1)
    core.attach(sessions[0], "q", 1)
    core.change(declare("q"), drop("q"))
    assert list(sessions[0].resets) == [1] and sessions[0].resets.noted == 1
    assert share_of(core).used_bytes == len(sessions) * ATTACHMENT_BYTES + RESET_BYTES
    assert sessions[0].resets.take(1) == [1]
    assert share_of(core).used_bytes == len(sessions) * ATTACHMENT_BYTES


def test_where_memory_is_full_of_them_attaches_are_refused_until_the_client_reads(core: CoreDriver) -> None:
    core.restart(DispatchShares(attached_bytes=100 * ATTACHMENT_BYTES))
    session = core.session()
    with pytest.raises(ResourceExhausted, match="memory of attached queues"):
        for handle in range(1, 2_000):
            core.change(declare("q"))
            core.dispatcher.attach(session, b"q", handle, 10, 1000)
            core.change(drop("q"))
            core.dispatcher.detach(session, handle)
    assert 500 < session.resets.counted < 700
    session.resets.take(1 << 30)
    assert share_of(core).used_bytes == 0
    assert core.attach(session, "q")
