"""What came on a connection at once, for which gRPC keeps buffers, is told from what came in time."""

from __future__ import annotations

import pytest

from shoal_runtime.limits import UNREAD_LOOKS

from .told_kernel import PEER, WHERE, Kernel, told


def test_what_came_at_once_is_told_from_what_came_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers of 100 KB/s seemed to have large buffers, and were hung up on in place of those that held memory."""
    now_s = 100.0
    monkeypatch.setattr("shoal_runtime.unread.time.monotonic", lambda: now_s)
    kernel = Kernel(0)
    unread = told(kernel)
    with unread.calling(PEER):
        for _ in range(50):
            now_s += 0.2
            unread.read(PEER, 20_000)
            kernel.taken_bytes += 20_016
        unread.look()
        assert 20_000 <= unread.clients[WHERE].burst < 21_000
        for _ in range(5):
            unread.read(PEER, 20_000)
            kernel.taken_bytes += 20_016
        unread.look()
        assert 100_000 <= unread.clients[WHERE].burst < 121_000
        now_s += 1
        unread.read(PEER, 900_000)
        kernel.taken_bytes += 900_500
        unread.look()
        assert unread.clients[WHERE].burst < 121_000, "a large message comes window by window"
        kernel.taken_bytes += 500_000
        unread.look()
        assert unread.clients[WHERE].burst > 490_000, "also where no handler reads it"


def test_what_came_before_the_first_look_is_a_burst_unless_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that were cut off before it left buffers that were never found; those read during it seemed to."""
    now_s = 100.0
    monkeypatch.setattr("shoal_runtime.unread.time.monotonic", lambda: now_s)
    for read in (False, True):
        kernel = Kernel(250_000)
        unread = told(kernel)
        unread.look()
        if read:
            unread.read(PEER, 20_000)
            now_s += 1
            unread.read(PEER, 229_000)
        for _ in range(UNREAD_LOOKS):
            now_s += 2
            unread.look()
        assert (unread.clients[WHERE].burst > 200_000) is not read


def test_a_message_that_comes_slowly_is_no_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 1 MB at 100 KB/s counted as a burst of 949 KB."""
    now_s = 100.0
    monkeypatch.setattr("shoal_runtime.unread.time.monotonic", lambda: now_s)
    kernel = Kernel(200)
    unread = told(kernel)
    with unread.calling(PEER):
        for number in range(24):
            now_s += 0.5
            kernel.taken_bytes += 50_000 if number > 3 else 0
            unread.look()
        unread.read(PEER, 1_000_000)
        unread.look()
    assert 50_000 <= unread.clients[WHERE].burst <= 80_000
