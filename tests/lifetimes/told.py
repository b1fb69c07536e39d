"""Compares what the node tells of a queue with the model: its depth, what a peek finds, who consumes it."""

from __future__ import annotations

from shoal_contract.options import QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.read.reading import peek
from shoal_slice_node.core.turns import finish
from tests.lifetimes.ending import Ending
from tests.lifetimes.world import HALL

_ALL = 1 << 40


class Run(Ending):
    """A run, with all that may be done in it."""

    def describe(self, name: str) -> None:
        """Checks a queue's description, and a peek. All acks are journaled before: depth is of the tables."""
        self.flush()
        self.wrote()
        self.core.pump()  # A session ends in turns.
        request = wire.Describe(queues=[name.encode()], bindings=True)
        described = finish(requests.describe(self.core.node, request).whole()).description.queues[0]
        queue, farewell = self.model.queues[name], self.model.farewells.timers[name].farewell
        assert described.exists, f"{name} is gone"
        consumers = len(self.consumers(name))
        assert described.attached_sessions == consumers, f"{name} has {consumers} consumers"
        assert QueueOptions.of_wire(described.options) == self.model.options_of(name).check()
        shown = (described.farewell.key, described.farewell.after_s) if described.HasField("farewell") else None
        assert shown == (farewell and (HALL.encode(), farewell.after_s)), f"{name} has the farewell {shown}"
        must_bytes = may_bytes = 0
        depths, times_ms = {one.key.decode(): one.messages for one in described.bindings}, set()
        is_exact = True
        for key in queue:
            must, may = self.model.depth(name, key)
            messages = self.model.messages[key]
            depth = depths.pop(key)
            assert len(must) <= depth <= len(may), f"{name} has {depth} of {key}, and should have {must}, at most {may}"
            must_bytes += sum(len(messages[offset].body) for offset in must)
            may_bytes += sum(len(messages[offset].body) for offset in may)
            is_exact = is_exact and must == may
            times_ms |= {messages[offset].time_ms for offset in must}
        assert not any(depths.values()), f"{name} has messages of {depths}"
        assert described.messages == sum(one.messages for one in described.bindings)
        assert must_bytes <= described.body_bytes <= may_bytes, f"{name} has {described.body_bytes} bytes"
        assert not is_exact or described.oldest_ms == min(times_ms, default=0), f"{name} begins {described.oldest_ms}"
        self._peek(name)

    def _peek(self, name: str) -> None:
        queue_id = self.core.tables.queue_by_name.get(name.encode())
        assert queue_id is not None
        found: dict[str, list[int]] = {key: [] for key in self.model.queues[name]}
        for delivery in finish(peek(self.core.state, queue_id, _ALL, _ALL, self.told_ms)):
            found[delivery.key.decode()] += range(delivery.low, delivery.to)
        for key, offsets in found.items():
            must, may = self.model.depth(name, key)
            assert offsets == sorted(set(offsets)), f"a peek into {name} shows {key} {offsets}"
            assert must <= set(offsets) <= may, f"a peek into {name} shows {key} {offsets}, which has {must}"
            over = [offset for offset in offsets if self.model.is_over(key, offset, self.told_ms)]
            assert not over, f"a peek into {name} shows {key} {over}, which had expired"
