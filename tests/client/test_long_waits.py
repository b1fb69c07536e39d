"""Ack timeouts of an inbox's queues, told slice by slice."""

from __future__ import annotations

from random import Random

from shoal.inbox_buffer import InboxBuffer
from shoal.long_waits import LongWaits


async def test_the_least_ack_timeout_that_slices_told_counts_whatever_they_told_before() -> None:
    random = Random(3)
    waits = LongWaits(InboxBuffer({}, 1 << 20, None), lambda: None)
    told: dict[str, dict[int, int]] = {name: {} for name in "abc"}
    for _ in range(2_000):
        name = random.choice("abc")
        some = {handle: random.choice((0, 0, 1_000, 2_000, 4_000)) for handle in random.sample(range(4), 2)}
        waits.learn(name, some)
        told[name].update(some)
        if random.random() < 0.1:
            gone = random.randrange(4)
            waits.leave([gone])
            for one in told.values():
                one.pop(gone, None)
        for handle in range(4):
            found = [one[handle] for one in told.values() if one.get(handle)]
            assert waits._waits_s.get(handle) == (min(found) / 2_000 if found else None)
        for slice_name, one in told.items():
            assert waits.timeouts_s(slice_name) == {handle: ms / 1_000 for handle, ms in one.items() if ms}
    waits.close()
