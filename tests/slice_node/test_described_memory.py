"""What a describe takes is reserved before it begins: its answer, and the done ranges that it decodes."""

from __future__ import annotations

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.answer_room import described_bytes
from shoal_slice_node.adapters.limits import DECODED_RANGES_BYTES, LARGE_ANSWER_BYTES, SMALL_ANSWER_BYTES
from shoal_slice_node.core.limits import DESCRIBED_LOOKED_AT_MAX
from shoal_slice_node.core.node.requests import decodes_ranges

from .core_driver import CoreDriver, bind, declare, every_second, publish, with_done


@pytest.fixture
def core() -> CoreDriver:
    core = CoreDriver()
    core.change(declare("plain", "ranges"), bind("plain", "k"), bind("ranges", "k"), publish("k", *([b"x"] * 70)))
    with_done(core, "ranges", ["k"], every_second(32))
    return core


def test_a_queue_with_done_ranges_takes_the_memory_of_some(core: CoreDriver) -> None:
    """500 describes of 5 bytes took a node of 320 MiB to 499: each decoded up to a megabyte, and had turns."""
    ranges, plain = wire.Describe(queues=[b"plain", b"ranges"]), wire.Describe(queues=[b"plain", b"no such queue"])
    assert decodes_ranges(core.node, ranges) and not decodes_ranges(core.node, plain)
    assert described_bytes(ranges, True) > DECODED_RANGES_BYTES
    assert described_bytes(plain, False) <= SMALL_ANSWER_BYTES, "it waits for nothing"


def test_of_many_queues_none_is_looked_at(core: CoreDriver) -> None:
    names = [b"q%d" % number for number in range(DESCRIBED_LOOKED_AT_MAX + 1)]
    assert decodes_ranges(core.node, wire.Describe(queues=names))
    assert not decodes_ranges(core.node, wire.Describe(queues=names[1:]))
    assert described_bytes(wire.Describe(queues=names, bindings=True), True) == LARGE_ANSWER_BYTES
