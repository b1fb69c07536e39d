"""Steps of tests with drops."""

from __future__ import annotations

from shoal_contract.errors import ShoalError, from_wire
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.verbs.changes import parse_change

from .core_driver import CoreDriver, bind

NINE = [f"k{number}" for number in range(9)]


def populated(queues: int) -> tuple[CoreDriver, list[str]]:
    core = CoreDriver()
    names = [f"q{number}" for number in range(queues)]
    core.declare(names)
    core.change_all(bind(name, *NINE) for name in names)
    return core, names


def item(data: bytes, found: list[Effects], failed: list[ShoalError] | None = None) -> Item:
    checked = parse_change(data)
    payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
    refused: list[ShoalError] = [] if failed is None else failed
    return Item(Kind.CHANGE, payload, found.append, refused.append, checked, checked.operations)


def refusal(outcome: wire.Outcome, step: int = 0, request: int = 0) -> ShoalError | None:
    found = [one for one in outcome.steps[step].refusals if one.request == request]
    return from_wire(found[0].error) if found else None


def exists(core: CoreDriver, queue: str) -> bool:
    return core.tables.queue_by_name.get(queue.encode()) is not None
