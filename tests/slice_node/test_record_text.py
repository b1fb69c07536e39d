"""What `shoal inspect journal` and `shoal repair` say of a change."""

from __future__ import annotations

from shoal_contract.journal_record import Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.storage.record_text import record_text

from .core_driver import acks, bind, publish


def test_a_transaction_is_told_as_such() -> None:
    steps = [bind("q", "a", "b"), publish("a", b"x"), acks(("q", "a", 1, 2), ("q", "b", 1, 2))]

    def text(atomic: bool) -> str:
        data = wire.Change(steps=steps, atomic=atomic).SerializeToString()
        payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
        return record_text(Record(Kind.CHANGE, 0, 5, 1, 0, payload)).partition("bytes: ")[2]

    assert text(False) == "2 bind, 1 publish, 2 ack; names: q, a, b"
    assert text(True) == "a transaction: " + text(False)
