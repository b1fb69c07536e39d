"""What watchers are sent is encoded once for all that need the same."""

from __future__ import annotations

from shoal_contract.partition_map import PartitionMap
from shoal_contract.wire import redirector_pb2 as wire
from shoal_redirector.adapters.steps import Steps
from shoal_redirector.core.directory import SliceAddress, directory_of
from shoal_redirector.limits import AGE_STEP_MS, STEPS_KEPT

FIRST = directory_of(PartitionMap.even(["s1", "s2"], 16), {"s1": SliceAddress("s1", "h:1", 3, "h:2")})
SECOND = directory_of(FIRST.map.moved({0: "s2"}), {})


def test_watchers_share_one_encoding() -> None:
    steps = Steps()
    whole = steps.encoded(None, FIRST, 0)
    assert steps.encoded(None, FIRST, AGE_STEP_MS - 1) is whole
    found = wire.WatchMapResponse.FromString(whole)
    assert (found.partitions, found.age_ms) == (16, 0)
    assert found.slices[0] == wire.SliceAddress(slice="s1", address="h:1", epoch=3, admin_address="h:2")
    step = steps.encoded(FIRST, SECOND, 0)
    assert steps.encoded(FIRST, SECOND, 0) is step
    assert list(wire.WatchMapResponse.FromString(step).moved) == [0]
    assert wire.WatchMapResponse.FromString(steps.encoded(None, SECOND, 0)).partitions == 16


def test_the_age_is_told_in_steps_and_what_is_kept_is_bounded() -> None:
    steps = Steps()
    for number in range(3 * STEPS_KEPT):
        found = wire.WatchMapResponse.FromString(steps.encoded(None, FIRST, number * AGE_STEP_MS + 7))
        assert found.age_ms == number * AGE_STEP_MS
        assert len(steps._encoded) <= STEPS_KEPT
