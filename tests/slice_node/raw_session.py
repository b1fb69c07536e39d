"""A session without the client library: frames as a test makes them, nothing read before it is asked for."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import grpc

from shoal_contract.errors import from_wire
from shoal_contract.wire import slice_pb2 as wire

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

Call = grpc.aio.StreamStreamCall[wire.SessionRequest, wire.SessionResponse]
WAIT_S = 60
NARROW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16))
"""Options of a channel whose transport takes 64 KiB for a client that does not read, and never more."""


class RawSession:
    """`answers` and `deliveries`: all that was read so far."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.answers: dict[int, wire.Answer] = {}
        self.deliveries: list[wire.Delivery] = []
        self._sequence = 0

    @classmethod
    async def open(cls, stub: SliceServiceAsyncStub, window_bytes: int = 0, producer: bytes = b"") -> RawSession:
        """`window_bytes` 0: the slice's default."""
        call = stub.Session()
        opened = wire.Open(producer=producer or uuid.uuid4().bytes, window_bytes=window_bytes)
        await call.write(wire.SessionRequest(open=opened))
        return cls(call)

    async def write(self, request: wire.SessionRequest) -> int:
        """Sends a frame and returns its number; it may wait as long as the slice does not read."""
        self._sequence += 1
        request.sequence = self._sequence
        await self.call.write(request)
        return self._sequence

    async def ask(self, request: wire.SessionRequest) -> wire.Answer:
        """Sends a frame and reads on until its answer comes. Raises what it was refused with."""
        sequence = await self.write(request)
        await self.read_until(lambda: sequence in self.answers)
        answer = self.answers.pop(sequence)
        if answer.HasField("error"):
            raise from_wire(answer.error)
        return answer

    async def change(self, *steps: wire.Step) -> wire.Outcome:
        """Raises what the frame, or a request of it, was refused with."""
        data = wire.Change(steps=steps).SerializeToString()
        answer = await self.ask(wire.SessionRequest(change=data))
        outcome = wire.Outcome.FromString(answer.outcome)
        for step in outcome.steps:
            for refusal in step.refusals:
                raise from_wire(refusal.error)
        return outcome

    async def attach(
        self, queues: Iterable[bytes], first_handle: int = 1, window_messages: int = 0, window_bytes: int = 0
    ) -> wire.Attached:
        names = list(queues)
        handles = range(first_handle, first_handle + len(names))
        attach = wire.Attach(queues=names, handles=handles, window_messages=window_messages, window_bytes=window_bytes)
        return (await self.ask(wire.SessionRequest(attach=attach))).attached

    async def detach(self, *handles: int) -> None:
        await self.ask(wire.SessionRequest(detach=wire.Detach(handles=handles)))

    async def ack(self, *acks: wire.Ack) -> None:
        await self.ask(wire.SessionRequest(acks=wire.Acks(acks=acks)))

    async def read(self) -> None:
        """One response. Raises AioRpcError when the slice ended the session."""
        response = await self.call.read()
        assert isinstance(response, wire.SessionResponse), "the stream has ended"
        self.deliveries.extend(response.deliveries)
        self.answers.update((answer.sequence, answer) for answer in response.answers)

    async def read_until(self, done: Callable[[], bool], wait_s: float = WAIT_S) -> None:
        async with asyncio.timeout(wait_s):
            while not done():
                await self.read()

    def offsets(self, handle: int, key: bytes | None = None) -> list[int]:
        """Those that came for this handle, in their order."""
        return [
            offset
            for delivery in self.deliveries
            if handle in delivery.handles and key in (None, delivery.key)
            for offset in range(delivery.low, delivery.to)
        ]


async def until_left(stub: SliceServiceAsyncStub, *queues: bytes) -> None:
    """Returns once no session consumes any of these queues."""
    describe = wire.DescribeRequest(describe=wire.Describe(queues=queues))
    async with asyncio.timeout(WAIT_S):
        while any(found.attached_sessions for found in (await stub.Describe(describe)).description.queues):
            pass
