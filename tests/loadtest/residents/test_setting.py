"""How many queues a generator consumes: what one session may attach on each slice bounds it."""

from __future__ import annotations

from shoal_loadtest.residents.limits import CONSUMED_PER_SESSION_MAX
from shoal_loadtest.residents.setting import Setting
from shoal_slice_node.core.limits import ATTACHED_PER_SESSION_MAX


def consumed(slices: int, generators: int, consumed_max: int) -> int:
    setting = Setting(redirector="", report="", slices=slices, generators=generators, consumed_max=consumed_max)
    return setting.consumed_per_generator


def test_a_generator_consumes_no_more_than_its_sessions_may_attach() -> None:
    assert CONSUMED_PER_SESSION_MAX < ATTACHED_PER_SESSION_MAX
    assert consumed(1, 1, 300_000) == CONSUMED_PER_SESSION_MAX
    assert consumed(3, 1, 300_000) == CONSUMED_PER_SESSION_MAX, "an inbox attaches all of its queues at each slice"
    assert consumed(1, 2, 300_000) == 150_000
