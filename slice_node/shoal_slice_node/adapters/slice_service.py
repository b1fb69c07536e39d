"""gRPC's side of a slice: sessions, and unary calls for simple clients. Foreign errors become typed ones here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc

from shoal_contract.errors import InvalidName, Malformed, ShoalError, from_wire
from shoal_contract.grpc_errors import abort
from shoal_contract.limits import PRODUCER_BYTES
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceServicer
from shoal_slice_node.adapters import requests
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.session_stream import SessionStream, check_open
from shoal_slice_node.core.records import NO_PRODUCER, ChangeHead
from shoal_slice_node.limits import PULL_LEASE_MS_DEFAULT

Context = grpc.aio.ServicerContext[Any, Any]
_UNNUMBERED = ChangeHead(NO_PRODUCER, 0, 0)


class SliceService(SliceServiceServicer):
    """All unary calls share one session of the broker: what they pull is leased."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._session = broker.open_session(0, lambda: None)

    async def Session(  # type: ignore[override]  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[wire.SessionRequest], context: Context
    ) -> None:
        try:
            first = await context.read()
            if first is grpc.aio.EOF:
                return
            stream = SessionStream(self._broker, context, check_open(first))
        except ShoalError as error:
            await abort(context, error)
        await stream.serve()

    async def Declare(self, request: wire.DeclareRequest, context: Context) -> wire.DeclareResponse:  # noqa: N802
        step = wire.Step(declares=wire.Declares(queues=[request.queue], options=request.options))
        await self._change(context, step)
        return wire.DeclareResponse()

    async def Bind(self, request: wire.BindRequest, context: Context) -> wire.BindResponse:  # noqa: N802
        binds = wire.Binds(
            queues=[request.queue],
            key_counts=[len(request.keys)],
            keys=request.keys,
            start=request.start,
            start_value=request.start_value,
        )
        outcome, _ = await self._change(context, wire.Step(binds=binds))
        return wire.BindResponse(offsets=outcome.offsets)

    async def Unbind(self, request: wire.UnbindRequest, context: Context) -> wire.UnbindResponse:  # noqa: N802
        unbinds = wire.Unbinds(
            queues=[request.queue], key_counts=[len(request.keys)], keys=request.keys, discard=request.discard
        )
        outcome, _ = await self._change(context, wire.Step(unbinds=unbinds))
        return wire.UnbindResponse(offsets=outcome.offsets)

    async def Publish(self, request: wire.PublishRequest, context: Context) -> wire.PublishResponse:  # noqa: N802
        publishes = wire.Publishes(
            keys=[request.key], chunks=[request.chunk.SerializeToString()], mandatory=request.mandatory
        )
        head = ChangeHead(request.producer or NO_PRODUCER, request.sequence, max(0, request.sequence - 1))
        outcome, live = await self._change(context, wire.Step(publishes=publishes), head)
        return wire.PublishResponse(offset=outcome.offsets[0], queues=outcome.queues[0], live=live[0] if live else 0)

    async def Drop(self, request: wire.DropRequest, context: Context) -> wire.DropResponse:  # noqa: N802
        await self._change(context, wire.Step(drops=wire.Drops(queues=[request.queue])))
        return wire.DropResponse()

    async def Purge(self, request: wire.PurgeRequest, context: Context) -> wire.PurgeResponse:  # noqa: N802
        messages = position = 0
        while True:
            purges = wire.Purges(queues=[request.queue], positions=[position])
            outcome, _ = await self._change(context, wire.Step(purges=purges))
            messages += outcome.messages[0]
            position = outcome.positions[0]
            if not position:
                return wire.PurgeResponse(messages=messages)

    async def Pull(self, request: wire.PullRequest, context: Context) -> wire.PullResponse:  # noqa: N802
        answer = await self._read(
            context, lambda: requests.pull(self._broker, self._session, request.pull, PULL_LEASE_MS_DEFAULT)
        )
        return wire.PullResponse(deliveries=answer.pulled.deliveries)

    async def Ack(self, request: wire.AckRequest, context: Context) -> wire.AckResponse:  # noqa: N802
        try:
            if any(ack.handles for ack in request.acks):
                raise Malformed("handles belong to sessions; a unary ack names its queues", subject="handles")
            requests.take_acks(self._broker, self._session, list(request.acks), whoever=True)
        except ShoalError as error:
            await abort(context, error)
        failure = await self._broker.acks.settled()
        if failure is not None:
            await abort(context, failure)
        return wire.AckResponse()

    async def Describe(self, request: wire.DescribeRequest, context: Context) -> wire.DescribeResponse:  # noqa: N802
        answer = await self._read(context, lambda: requests.describe(self._broker, request.describe))
        return wire.DescribeResponse(description=answer.description)

    async def _change(
        self, context: Context, step: wire.Step, head: ChangeHead = _UNNUMBERED
    ) -> tuple[wire.StepOutcome, Sequence[int]]:
        if len(head.producer) != PRODUCER_BYTES:
            problem = f"producer is {len(head.producer)} bytes; it needs {PRODUCER_BYTES}"
            await abort(context, InvalidName(problem, subject="producer"))
        data = wire.Change(steps=[step]).SerializeToString()
        answer = await self._ask(context, lambda answered: requests.submit_change(self._broker, head, data, answered))
        outcome = wire.Outcome.FromString(answer.outcome).steps[0]
        if outcome.refusals:
            await abort(context, from_wire(outcome.refusals[0].error))
        return outcome, answer.live

    async def _read(self, context: Context, read: Callable[[], wire.Answer]) -> wire.Answer:
        return await self._ask(context, lambda answered: requests.submit_read(self._broker, 0, read, answered))

    async def _ask(self, context: Context, submit: Callable[[requests.Answered], None]) -> wire.Answer:
        done: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()

        def answered(answer: wire.Answer) -> None:
            if not done.done():
                done.set_result(answer)

        await self._broker.commit.room()
        try:
            submit(answered)
        except ShoalError as error:
            await abort(context, error)
        answer = await done
        if answer.HasField("error"):
            await abort(context, from_wire(answer.error))
        return answer
