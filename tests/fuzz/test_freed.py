"""What ended is freed as soon as nothing names it, not by the garbage collector: a node's collector looks too seldom at
old objects (GC_THRESHOLDS), so what is in a circle would stay for good, and in no share of the memory."""

from __future__ import annotations

import gc
from collections import Counter

from shoal_slice_node.core.dispatch.acks_in_flight import AckBatch
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.leases import Lease
from shoal_slice_node.core.dispatch.parcels import Parcel
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.node.node import Node
from tests.fuzz.runs import attempt, plan
from tests.fuzz.steps import crash
from tests.fuzz.world import World

FREED = (AckBatch, Attachment, Feed, Item, Lease, Parcel, Session, Stream)
RUNS = 10


def test_nothing_that_ended_waits_for_the_collector() -> None:
    seen: Counter[str] = Counter()
    left: Counter[str] = Counter()

    def look(world: World) -> None:
        """Only the node and the session of unary calls are left of the world; all queues were dropped."""
        node, shared = world.node.node, world.node.shared
        kept = {name: world.node.__dict__[name] for name in ("node", "_now_ms")}
        seen.update(type(one).__name__ for one in gc.get_objects() if isinstance(one, FREED))
        world.node.__dict__.clear()
        world.__dict__.clear()
        world.node = kept  # type: ignore[assignment]
        left.update(type(one).__name__ for one in gc.get_objects() if isinstance(one, FREED) and one is not shared)
        assert isinstance(node, Node)

    for seed in range(RUNS):
        found = plan(seed)  # Without crashes: the node before a crash is a circle itself.
        found = found._replace(steps=[one for one in found.steps if one[0] is not crash])
        gc.collect()
        gc.disable()
        try:
            assert attempt(found, then=look) is None
        finally:
            gc.enable()
    assert not left
    assert seen["Session"] > 10, "the models keep what ended"
