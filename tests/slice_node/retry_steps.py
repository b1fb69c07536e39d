"""RETRY records that a test holds back."""

from __future__ import annotations

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.node.commit import Item

from .core_driver import publish, raises
from .dead_letters_driver import DeadLettersDriver
from .nacks_driver import attached


def retry_records(core: DeadLettersDriver) -> int:
    return sum(record.kind == Kind.RETRY for record in core.records)


def beside_a_record(core: DeadLettersDriver, *steps: wire.Step) -> None:
    """A change that is gathered with the next RETRY record, and applied before it."""
    data = wire.Change(steps=steps).SerializeToString()
    change = encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
    core.node.commit.submit(Item(Kind.CHANGE, change, lambda _: None, raises))
    core.maintain()


def three(core: DeadLettersDriver) -> Session:
    session = attached(core)
    core.change(publish("k", b"a", b"b", b"c"))
    assert core.times(session) == [(1, 0), (2, 0), (3, 0)]
    return session
