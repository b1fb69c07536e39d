"""Does changes of live publishes: looks up what is bound, and gives the chunks to the sessions that consume them now.

Such a change is not journaled, and changes no table. It has its place among the commit loop's items, so the stored
publishes of its source that came before it are applied. Not here: which queues get a chunk (dispatch/live, growing).
"""

from __future__ import annotations

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.routing import direct_queue, unroutable
from shoal_slice_node.core.dispatch.live import LiveChunk
from shoal_slice_node.core.limits import APPLIED_PER_STEP
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.rows.key_row import ID, decode_key
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.changes import Checked


def publish_live(node: Node, checked: Checked, answer: wire.Answer) -> Work[Effects]:
    """Does a change of live publishes, in steps, and fills in its answer: an outcome with offsets 0, and `consumed`.
    Counts as `publish` does. A key that this slice does not own, and one without queues where the publish is mandatory,
    is refused."""
    state, counters = node.state, node.state.counters
    measures = iter(checked.measures)
    node.dispatcher.begin_live()
    outcome = wire.Outcome()
    state.refusals.begin()
    for step in checked.change.steps:
        publishes, found = step.publishes, outcome.steps.add()
        for number, (key, chunk) in enumerate(zip(publishes.keys, publishes.chunks, strict=True)):
            messages, _ = next(measures)
            try:
                routed, consumed = _publish(node, key, chunk, messages, publishes.mandatory)
            except ShoalError as error:
                routed = consumed = 0
                counters.refuse(error.code)
                found.refusals.append(state.refusals.to_wire(number, error))
            else:
                counters.count_live(messages)
            found.offsets.append(0)
            found.queues.append(routed)
            answer.consumed.append(consumed)
            if number % APPLIED_PER_STEP == 0:
                yield
    state.refusals.begin()
    answer.outcome = outcome.SerializeToString()
    return Effects()


def _publish(node: Node, key: bytes, chunk: bytes, messages: int, mandatory: bool) -> tuple[int, int]:
    """Gives a live chunk to the sessions that consume the key now. Returns the number of queues it was
    routed to, and of those that are consumed. Raises NotOwner; Unroutable if mandatory and nothing is bound."""
    state, dispatcher = node.state, node.dispatcher
    tables = state.tables
    full_name = state.owned_name(key)
    row = tables.key.get(full_name)
    queues = 0 if row is None else tables.binding.count(row[ID])
    if row is not None and queues:
        found = decode_key(row)
        dispatcher.live(LiveChunk(found.id, key, found.head, messages, node.commit.time_ms, chunk))
        return queues, dispatcher.consumed_of_key(found.id, queues)
    queue_id = direct_queue(state, full_name)
    if queue_id is not None:  # Bound to its direct key, which no stored publish has used yet.
        live = LiveChunk(b"", key, 0, messages, node.commit.time_ms, chunk)
        return 1, int(dispatcher.live_directly(live, queue_id))
    if mandatory:
        raise unroutable(state, key)
    return 0, 0
