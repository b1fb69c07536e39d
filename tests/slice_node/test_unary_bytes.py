"""Unary calls with many small parts count by what they take in memory, not by their bytes alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.admission import Admission
from shoal_slice_node.core.limits import ACK_KEPT_BYTES, DESCRIBED_NAME_KEPT_BYTES, OPERATION_KEPT_BYTES

from .brokers import connected, running

COUNT = 100


async def test_small_parts_of_a_unary_call_count_while_it_is_worked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    working = Admission.working

    @contextmanager
    def noted(admission: Admission, size_bytes: int) -> Iterator[None]:
        counted.append(size_bytes)
        with working(admission, size_bytes):
            yield

    monkeypatch.setattr(Admission, "working", noted)
    messages = [wire.Ack(key=b"k", low=low, to=low + 1, queues=[b"q"]) for low in range(1, COUNT + 1)]
    names = [b"%d" % number for number in range(COUNT)]
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Bind(wire.BindRequest(queue=b"q", keys=names))
        await stub.Unbind(wire.UnbindRequest(queue=b"q", keys=names))
        await stub.Ack(wire.AckRequest(acks=messages))
        await stub.Nack(wire.NackRequest(nacks=wire.Nacks(messages=messages)))
        await stub.Describe(wire.DescribeRequest(describe=wire.Describe(keys=names)))
    kept = (0, OPERATION_KEPT_BYTES, OPERATION_KEPT_BYTES, ACK_KEPT_BYTES, ACK_KEPT_BYTES, DESCRIBED_NAME_KEPT_BYTES)
    for size_bytes, each in zip(counted, kept, strict=True):
        assert size_bytes >= COUNT * each, (counted, each)
    assert counted[0] < COUNT * DESCRIBED_NAME_KEPT_BYTES
