"""Serves SliceService over gRPC: sessions, and unary calls for simple clients. Translates foreign errors to typed
ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import grpc

from shoal_contract.errors import Malformed, ShoalError, from_wire
from shoal_contract.limits import PRODUCER_BYTES, PULL_LEASE_MS_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.aborting import abort
from shoal_runtime.client_patience import ClientPatience
from shoal_runtime.places import Places
from shoal_slice_node.adapters import requests
from shoal_slice_node.adapters.admission import Admission
from shoal_slice_node.adapters.answer_room import described_bytes
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import (
    LARGE_ANSWER_BYTES,
    PULL_LEASE_MS_DEFAULT,
    SESSION_OPEN_CROWDED_S,
    SESSION_OPEN_S,
    SESSIONS_OPENING,
)
from shoal_slice_node.adapters.session_stream import SessionStream, check_open
from shoal_slice_node.adapters.unary import Call, Unary, parse, unary_handlers
from shoal_slice_node.adapters.watch_stream import WatchStream
from shoal_slice_node.core.apply.producers import numbered_twice, only_step
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead
from shoal_slice_node.core.dispatch.pulling import PullAnswer
from shoal_slice_node.core.limits import ACK_KEPT_BYTES, DESCRIBED_NAME_KEPT_BYTES, OPERATION_KEPT_BYTES
from shoal_slice_node.core.node import requests as node_requests
from shoal_slice_node.core.node import settling
from shoal_slice_node.core.node.named_feeds import named_feeds
from shoal_slice_node.core.node.reads import Length, Read
from shoal_slice_node.core.turns import Source, Work
from shoal_slice_node.core.verbs.changes import parse_change

_Found = TypeVar("_Found")

Context = grpc.aio.ServicerContext[Any, Any]
_UNNUMBERED = ChangeHead(NO_PRODUCER, 0, 0)
SERVICE = "shoal.v1.SliceService"


class SliceService:
    """Serves sessions and unary calls. All unary calls share one session of the broker; the messages that they pull are
    leased. Calls of one connection are one source of the commit loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._session = broker.open_shared_session()
        self._opening = Places("sessions that open", SESSIONS_OPENING)
        self._patience = ClientPatience(self._opening, "session", SESSION_OPEN_S, SESSION_OPEN_CROWDED_S)

    async def session(self, _: object, context: Context) -> None:
        try:
            self._broker.check_takes_sessions()
            async with self._opening.place(context.peer()), self._patience.waiting(context.peer(), "sent"):
                first = await context.read()
            if first is grpc.aio.EOF:
                return
            self._broker.watchman.unread.read(context.peer(), len(first), first=True)
            stream = SessionStream(self._broker, context, check_open(first))
        except ShoalError as error:
            await abort(context, error)
        await stream.serve()

    async def watch(self, _: object, context: Context) -> None:
        try:
            async with self._opening.place(context.peer()), self._patience.waiting(context.peer(), "sent"):
                data = await context.read()
            if data is grpc.aio.EOF:
                raise Malformed("the call has no request", subject="request")
            self._broker.watchman.unread.read(context.peer(), len(data), first=True)
            request = parse(wire.WatchRequest, data, {4: {}})
            del data
            await WatchStream(self._broker, context).serve(request)
        except ShoalError as error:
            await abort(context, error)

    async def declare(self, request: wire.DeclareRequest, call: Call) -> wire.DeclareResponse:
        step = wire.Step(declares=wire.Declares(queues=[request.queue], options=request.options))
        outcome, _ = await self._change(call, step)
        return wire.DeclareResponse(incarnation=outcome.offsets[0])

    async def bind(self, request: wire.BindRequest, call: Call) -> wire.BindResponse:
        binds = wire.Binds(
            queues=[request.queue],
            key_counts=[len(request.keys)],
            keys=request.keys,
            start=request.start,
            start_value=request.start_value,
        )
        outcome, _ = await self._change(call, wire.Step(binds=binds))
        return wire.BindResponse(offsets=outcome.offsets, bound_before=outcome.bound_before)

    async def unbind(self, request: wire.UnbindRequest, call: Call) -> wire.UnbindResponse:
        unbinds = wire.Unbinds(
            queues=[request.queue], key_counts=[len(request.keys)], keys=request.keys, discard=request.discard
        )
        outcome, _ = await self._change(call, wire.Step(unbinds=unbinds))
        return wire.UnbindResponse(offsets=outcome.offsets)

    async def publish(self, request: wire.PublishRequest, call: Call) -> wire.PublishResponse:
        publishes = wire.Publishes(
            keys=[request.key],
            chunks=[request.chunk.SerializeToString()],
            mandatory=request.mandatory,
            ttl_ms=request.ttl_ms,
            not_before_ms=request.not_before_ms,
            live=request.live,
        )
        if request.live and (request.producer or request.sequence):
            raise Malformed(
                "a live publish has no producer and no sequence: it is not stored, so a repeat cannot be known",
                subject="live",
            )
        head = ChangeHead(request.producer or NO_PRODUCER, request.sequence, max(0, request.sequence - 1))
        if len(head.producer) != PRODUCER_BYTES:
            raise Malformed(f"producer is {len(head.producer)} bytes; it needs {PRODUCER_BYTES}", subject="producer")
        outcome, consumed = await self._change(call, wire.Step(publishes=publishes), head)
        if len(outcome.offsets) != 1 or len(outcome.queues) != 1:
            raise numbered_twice(head.sequence)
        return wire.PublishResponse(
            offset=outcome.offsets[0], queues=outcome.queues[0], consumed=consumed[0] if consumed else 0
        )

    async def drop(self, request: wire.DropRequest, call: Call) -> wire.DropResponse:
        drops = wire.Drops(queues=[request.queue], if_unused=request.if_unused, if_empty=request.if_empty)
        await self._change(call, wire.Step(drops=drops))
        return wire.DropResponse()

    async def purge(self, request: wire.PurgeRequest, call: Call) -> wire.PurgeResponse:
        messages = position = 0
        while True:
            purges = wire.Purges(queues=[request.queue], positions=[position])
            outcome, _ = await self._change(call, wire.Step(purges=purges))
            messages += outcome.messages[0]
            position = outcome.positions[0]
            if not position:
                return wire.PurgeResponse(messages=messages)

    async def configure(self, request: wire.ConfigureRequest, call: Call) -> wire.ConfigureResponse:
        configures = wire.Configures(keys=[request.key], options=request.options)
        await self._change(call, wire.Step(configures=configures))
        return wire.ConfigureResponse()

    async def farewell(self, request: wire.FarewellRequest, call: Call) -> wire.FarewellResponse:
        farewells = wire.Farewells(queues=[request.queue], after_s=request.after_s)
        if request.key or request.HasField("chunk"):
            farewells.keys.append(request.key)
            farewells.chunks.append(request.chunk.SerializeToString())
        await self._change(call, wire.Step(farewells=farewells))
        return wire.FarewellResponse()

    async def pull(self, request: wire.PullRequest, call: Call) -> wire.PullResponse:
        broker, pulled = self._broker, PullAnswer()
        lease_ms, others_wait = PULL_LEASE_MS_DEFAULT, broker.answers.others_wait
        read = node_requests.pull(
            broker.node, self._session, request.pull, lease_ms, PULL_LEASE_MS_MAX, pulled, others_wait
        )

        def ended(failure: type[BaseException] | None, *_: object) -> None:
            if failure is None:
                broker.commit_loop.between(pulled.left)
            else:  # The client never gets it.
                pulled.drop()
            broker.start_due_work()

        call.held.push(ended)
        answer = await (self._look(call, read) if request.pull.peek else self._read(call, read))
        return wire.PullResponse(deliveries=answer.pulled.deliveries, gaps=answer.pulled.gaps)

    async def ack(self, request: wire.AckRequest, call: Call) -> wire.AckResponse:
        acks = _of_queues(request.acks)
        source, node = Source(call.peer, "unary acks"), self._broker.node
        self._broker.check_takes_changes(frees=True)
        await self._taken(lambda done: settling.take_acks(node, source, self._session, acks, done, everyone=True))
        failure = await self._broker.settled_acks(named_feeds(node, self._session, acks))
        if failure is not None:
            raise failure
        self._broker.check_may_answer()
        return wire.AckResponse()

    async def nack(self, request: wire.NackRequest, call: Call) -> wire.NackResponse:
        _of_queues(request.nacks.messages)
        source, node, nacks = Source(call.peer, "unary acks"), self._broker.node, request.nacks
        await self._taken(lambda done: settling.take_nacks(node, source, self._session, nacks, done, everyone=True))
        self._broker.check_may_answer()
        return wire.NackResponse()

    async def _taken(self, take: Callable[[Callable[[ShoalError | None], None]], None]) -> None:
        """Has acks or nacks taken; returns when they are. Raises the error with which they are refused."""
        taken: asyncio.Future[ShoalError | None] = asyncio.get_running_loop().create_future()
        take(lambda error: None if taken.done() else taken.set_result(error))
        self._broker.start_due_work()
        failure = await taken
        if failure is not None:
            raise failure

    async def describe(self, request: wire.DescribeRequest, call: Call) -> wire.DescribeResponse:
        read = node_requests.describe(self._broker.node, request.describe)
        answer = await self._look(call, read, described_bytes(request.describe))
        return wire.DescribeResponse(description=answer.description)

    async def _change(
        self, call: Call, step: wire.Step, head: ChangeHead = _UNNUMBERED
    ) -> tuple[wire.StepOutcome, Sequence[int]]:
        """Submits one step as a change. Returns its outcome, and for each publish how many queues are consumed. Raises
        the error with which the slice refuses it."""
        data = wire.Change(steps=[step]).SerializeToString()
        source, checked = Source(call.peer, call.peer), parse_change(data)
        answer = await self._ask(
            source, lambda answered: requests.submit_change(self._broker, source, head, data, checked, answered)
        )
        assert answer is not None
        outcome = only_step(answer.outcome, head.sequence)
        if outcome.refusals:
            raise from_wire(outcome.refusals[0].error)
        return outcome, answer.consumed

    async def _read(
        self, call: Call, read: Read, answer_bytes: int = LARGE_ANSWER_BYTES, looks: bool = False
    ) -> wire.Answer:
        """Does a read and returns its answer: as a quick one, and as a longer one if it was not done soon. The room
        reserved for the answer is kept until the client has it. `looks`: see Node.add_work."""
        found: wire.Answer | Length = Length.QUICK
        while isinstance(found, Length):
            found = await self._attempt(call, read, answer_bytes, looks, found)
        return found

    async def _attempt(
        self, call: Call, read: Read, answer_bytes: int, looks: bool, length: Length
    ) -> wire.Answer | Length:
        """Returns the answer, or among which reads this one is to wait next."""
        source = Source(call.peer, call.peer)
        reservation = await self._broker.answers.reserved(source.connection, answer_bytes, length)
        call.held.callback(reservation.release)
        long_work = self._broker.long_work
        if long_work.has(source):
            reservation.release()
            await long_work.over(source)
            return length
        work, longer = requests.way_to_read(self._broker, reservation, read)
        answer = None
        if work is not None:
            takes_long = length >= Length.MIDDLING and not looks
            if takes_long:
                long_work.begin(source)
            try:
                answer = await self._submitted(source, work, looks)
            finally:
                if takes_long:
                    long_work.end(source)
        if answer is None:
            reservation.release()
            return longer
        reservation.settle(answer.ByteSize())
        return answer

    async def _submitted(
        self, source: Source, work: Callable[[], Work[wire.Answer | None]], looks: bool = False
    ) -> wire.Answer | None:
        """Does work in turns, and returns its answer."""
        submit = partial(requests.submit_work, self._broker, source, 0, work, looks=looks)
        return await self._ask(source, lambda answered: submit(answered, partial(answered, None)))

    async def _look(self, call: Call, read: Read, answer_bytes: int = LARGE_ANSWER_BYTES) -> wire.Answer:
        """Does as `_read` for a read that takes nothing: no other waits for it, and it ends once the client hangs
        up."""
        return await self._read(call, _while_wanted(call, read), answer_bytes, looks=True)

    async def _ask(
        self, source: Source, submit: Callable[[Callable[[wire.Answer | None], None]], None]
    ) -> wire.Answer | None:
        """Submits work and returns its answer, None if that is what it is called with. Raises the answer's error."""
        done: asyncio.Future[wire.Answer | None] = asyncio.get_running_loop().create_future()

        def answered(answer: wire.Answer | None) -> None:
            if not done.done():
                done.set_result(answer)

        await self._broker.commit_loop.room(source.connection)
        submit(answered)
        answer = await done
        self._broker.check_may_answer()
        if answer is not None and answer.HasField("error"):
            raise from_wire(answer.error)
        return answer


def _while_wanted(call: Call, read: Read) -> Read:
    """Returns a read that takes nothing, and ends at its next step once the client has hung up."""
    has_left: list[bool] = []
    call.held.callback(has_left.append, True)

    def wanted(begin: Callable[[], Work[_Found]]) -> Work[_Found | wire.Answer]:
        work = begin()
        while not has_left:
            try:
                next(work)
            except StopIteration as stop:
                found: _Found = stop.value
                return found
            yield
        work.close()
        return wire.Answer()

    return read._replace(
        whole=lambda: wanted(read.whole), within=lambda steps_max: wanted(partial(read.within, steps_max))
    )


def _of_queues(acks: Sequence[wire.Ack]) -> list[wire.Ack]:
    """Returns the acks of a unary call. Raises Malformed if one names handles."""
    if any(ack.handles for ack in acks):
        raise Malformed("handles belong to sessions; a unary ack or nack names its queues", subject="handles")
    return list(acks)


def _of_keys(request: wire.BindRequest | wire.UnbindRequest) -> int:
    return OPERATION_KEPT_BYTES * len(request.keys)


def _of_acks(request: wire.AckRequest) -> int:
    return ACK_KEPT_BYTES * len(request.acks)


def _of_nacks(request: wire.NackRequest) -> int:
    return ACK_KEPT_BYTES * len(request.nacks.messages)


def _of_names(request: wire.DescribeRequest) -> int:
    return DESCRIBED_NAME_KEPT_BYTES * (len(request.describe.queues) + len(request.describe.keys))


def unary_methods(service: SliceService) -> dict[str, Unary]:
    """Returns the unary methods by name, with the shapes of their requests."""
    return {
        "Declare": Unary(wire.DeclareRequest, service.declare, {2: {}}),
        "Bind": Unary(wire.BindRequest, service.bind, kept_bytes=_of_keys),
        "Unbind": Unary(wire.UnbindRequest, service.unbind, kept_bytes=_of_keys),
        "Publish": Unary(wire.PublishRequest, service.publish, {2: {2: {1: {}}}}),
        "Pull": Unary(wire.PullRequest, service.pull, {1: {}}),
        "Ack": Unary(wire.AckRequest, service.ack, {1: {4: None, 6: None}}, _of_acks),
        "Nack": Unary(wire.NackRequest, service.nack, {1: {1: {4: None, 6: None}, 4: None}}, _of_nacks),
        "Drop": Unary(wire.DropRequest, service.drop),
        "Purge": Unary(wire.PurgeRequest, service.purge),
        "Configure": Unary(wire.ConfigureRequest, service.configure, {2: {}}),
        "Farewell": Unary(wire.FarewellRequest, service.farewell, {3: {2: {1: {}}}}),
        "Describe": Unary(wire.DescribeRequest, service.describe, {1: {}}, _of_names),
    }


def slice_handlers(broker: Broker, admission: Admission) -> Sequence[grpc.GenericRpcHandler]:
    """Returns the handlers of SliceService, to be added to a server. They get requests as bytes, so that the cost of
    parsing is known before."""
    service = SliceService(broker)
    methods = unary_methods(service)
    streams: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        name: grpc.stream_stream_rpc_method_handler(broker.watchman.unread.counted(serve))
        for name, serve in (("Session", service.session), ("Watch", service.watch))
    }
    return (
        grpc.method_handlers_generic_handler(SERVICE, streams),
        unary_handlers(SERVICE, methods, admission),
    )
