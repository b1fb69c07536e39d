"""Pull and ack without a session, for who keeps no connection: HTTP gateways, short scripts, many processes.

What is pulled belongs to its lease and not to a connection: any process acks it by queue, key and offsets, and what is
not acked when the lease ends is given again. Not here: pulling for a connection (pulling.py), push (inbox.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import grpc.aio

from shoal.backoff import Backoff
from shoal.broker import Broker
from shoal.channels import open_channel
from shoal.limits import LEASE_BACKLOGS_MAX, PULL_BYTES_MAX
from shoal.messages import Delivery, Message
from shoal.waiting import no_such_queue, remaining_s
from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import MapOrLeaderChanged, NoSuchQueue, OutOfRange, ShoalError, TooLarge, Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.names import Name, encode_name
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

Answer = TypeVar("Answer")


class Done(NamedTuple):
    """Offsets first <= offset < end of a key."""

    key: Name
    first: int
    end: int


class Backlog(NamedTuple):
    """What a queue still has to get, leased messages included. `slices`: those that hold some of it."""

    exists: bool
    messages: int
    slices: tuple[str, ...]


class Leases:
    """Over an open connection: `async with shoal.Leases(broker) as leases`. Has one channel for each slice in use."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routing = broker._routing
        self._channels: dict[str, grpc.aio.Channel] = {}
        """By address: as many as the map ever named."""

    async def __aenter__(self) -> Leases:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def backlogs(self, queues: Sequence[Name], *, deadline_s: float | None = None) -> list[Backlog]:
        """Of at most 1,000 queues, in order: one question to each slice. Raises TooLarge, InvalidName."""
        if len(queues) > LEASE_BACKLOGS_MAX:
            raise TooLarge(
                f"queues in one question: {len(queues)}; the limit is {LEASE_BACKLOGS_MAX}",
                subject="queues",
                limit=LEASE_BACKLOGS_MAX,
                value=len(queues),
            )
        question = wire.Describe(queues=[encode_name(queue, "queue") for queue in queues])
        deadline = self._broker._deadline(deadline_s)
        names = self._routing.map.current.slices
        frames = [await self._routing.session(name).asked(question, deadline) for name in names]
        answers = [(await frame.future).description.queues for frame in frames]
        found = []
        for parts in zip(*answers, strict=True):
            holding = tuple(name for name, part in zip(names, parts, strict=True) if part.messages)
            found.append(Backlog(any(part.exists for part in parts), sum(part.messages for part in parts), holding))
        return found

    async def pull(
        self,
        queue: Name,
        messages: int,
        *,
        lease_ms: int,
        bytes_max: int = PULL_BYTES_MAX,
        deadline_s: float | None = None,
    ) -> list[Message]:
        """Takes up to `messages` messages now, about `bytes_max` bytes of bodies, for `lease_ms` milliseconds (> 0).

        Ack them with `ack` below, not by their own. Raises NoSuchQueue, OutOfRange. A call that fails may have taken
        messages: they come again when their lease ends.
        """
        if lease_ms < 1:
            raise OutOfRange(f"lease_ms is {lease_ms}; it needs at least 1", subject="lease_ms", limit=1)
        name = encode_name(queue, "queue")
        deadline = self._broker._deadline(deadline_s)
        backlog = (await self.backlogs([name], deadline_s=deadline_s))[0]
        if not backlog.exists:
            raise no_such_queue(name)
        found: list[Message] = []
        size_bytes = 0
        for slice_name in backlog.slices:
            left, left_bytes = messages - len(found), bytes_max - size_bytes
            if left <= 0 or left_bytes <= 0:
                break
            pull = wire.Pull(
                queue=name, messages_max=left, bytes_max=min(left_bytes, PULL_BYTES_MAX), lease_ms=lease_ms
            )
            taken = await self._pull_from(slice_name, pull, deadline)
            found += taken
            size_bytes += sum(len(message.body) for message in taken)
        return found

    async def ack(self, queue: Name, done: Iterable[Done], *, deadline_s: float | None = None) -> None:
        """These offsets are done for the queue, whoever has them; durable when this returns.

        What nobody has (never given, given back since, or acked already) is left as it is.
        """
        name = encode_name(queue, "queue")
        deadline = self._broker._deadline(deadline_s)
        left = [wire.Ack(key=encode_name(one.key, "key"), low=one.first, to=one.end, queues=[name]) for one in done]
        backoff = Backoff()
        while left:
            groups: dict[str, list[wire.Ack]] = {}
            for ack in left:
                groups.setdefault(self._routing.map.current.owner_of(ack.key), []).append(ack)
            left = []
            for slice_name, acks in groups.items():
                try:
                    await self._ack_at(slice_name, acks, deadline)
                except MapOrLeaderChanged as error:
                    left += acks
                    await self._newer_map(error, backoff, deadline)

    async def _ack_at(self, slice_name: str, acks: Sequence[wire.Ack], deadline: float) -> None:
        await self._ask(slice_name, lambda stub: stub.Ack(wire.AckRequest(acks=acks)), deadline)

    async def _pull_from(self, slice_name: str, pull: wire.Pull, deadline: float) -> list[Message]:
        try:
            answer = await self._ask(slice_name, lambda stub: stub.Pull(wire.PullRequest(pull=pull)), deadline)
        except (NoSuchQueue, MapOrLeaderChanged):
            return []  # Gone since the backlog was asked for; what moved is at its new owner the next time.
        found: list[Message] = []
        for item in answer.deliveries:
            first: int = item.low
            delivery = Delivery(item, first, item.to, parse_chunk(item.chunk), (pull.queue,), _LEASED)
            found += delivery.messages()
        return found

    async def _ask(
        self, slice_name: str, call: Callable[[SliceServiceAsyncStub], Awaitable[Answer]], deadline: float
    ) -> Answer:
        """Until the slice answers. Raises what it refuses, NotOwner among it; DeadlineExceeded."""
        backoff = Backoff()
        while True:
            address = self._routing.map.current.address_of(slice_name)
            try:
                async with asyncio.timeout_at(deadline):
                    if address:
                        return await call(self._stub(address))
            except TimeoutError:
                remaining_s(deadline, f"request to slice {slice_name}")
            except grpc.aio.AioRpcError as error:
                problem = from_rpc_error(error)
                if not isinstance(problem, Unavailable):
                    raise problem from None
                self._routing.map.suspect()
            pause_s = min(backoff.pause_s(), remaining_s(deadline, f"request to slice {slice_name}"))
            await self._routing.map.change(pause_s)

    async def _newer_map(self, error: ShoalError, backoff: Backoff, deadline: float) -> None:
        self._routing.map.suspect()
        await self._routing.map.change(min(backoff.pause_s(), remaining_s(deadline, error.message)))

    def _stub(self, address: str) -> SliceServiceAsyncStub:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address)
        return SliceServiceStub(channel)


class _Leased:
    """Leased messages are acked by name: their own `ack` would need a session."""

    def ack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        raise RuntimeError("leased messages are acked with Leases.ack")

    def queue_of(self, consumer: int | bytes) -> bytes:
        assert isinstance(consumer, bytes), "leased messages have no handles"
        return consumer


_LEASED = _Leased()
