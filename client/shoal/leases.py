"""Pull and ack without a session, for who keeps no connection: HTTP gateways, short scripts, many processes.

What is pulled belongs to its lease and not to a connection: any process acks it by queue, key and offsets, and what is
not acked when the lease ends is given again. Not here: pulling for a connection (pulling.py), push (inbox.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import grpc.aio

from shoal.broker import Broker
from shoal.limits import LEASE_BACKLOGS_MAX, LEASE_LOOK_S, LEASE_REGROUP_S, PULL_BYTES_MAX
from shoal.messages import Delivery, Message
from shoal.slice_calls import Ask
from shoal.waiting import no_such_queue, remaining_s
from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import (
    MapOrLeaderChanged,
    NoSuchQueue,
    OutcomeUnknown,
    OutOfRange,
    TooLarge,
    Unavailable,
)
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
    silent: tuple[str, ...]
    """Slices that did not answer in time: what they hold is not counted."""


class Leases:
    """Over an open broker's connection: `leases = shoal.Leases(broker)`. Ends with it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routing = broker._routing
        self._calls = broker._calls

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
        deadline = min(self._broker._deadline(deadline_s), self._broker._deadline(LEASE_LOOK_S))
        names = self._routing.map.current.slices
        answers = dict(
            zip(names, await asyncio.gather(*(self._look(name, question, deadline) for name in names)), strict=True)
        )
        silent = tuple(name for name, answer in answers.items() if answer is None)
        found = []
        for index in range(len(queues)):
            parts = {name: answer[index] for name, answer in answers.items() if answer is not None}
            holding = tuple(name for name, part in parts.items() if part.messages)
            exists = any(part.exists for part in parts.values())
            found.append(Backlog(exists, sum(part.messages for part in parts.values()), holding, silent))
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

        Ack them with `ack` below, not by their own. Raises NoSuchQueue, OutOfRange;
        Unavailable where a slice does not answer and the others have nothing. A call that fails may have taken
        messages: they come again when their lease ends.
        """
        if lease_ms < 1:
            raise OutOfRange(f"lease_ms is {lease_ms}; it needs at least 1", subject="lease_ms", limit=1)
        name = encode_name(queue, "queue")
        deadline = self._broker._deadline(deadline_s)
        backlog = (await self.backlogs([name], deadline_s=deadline_s))[0]
        if not backlog.exists and not backlog.silent:
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
        if not found and backlog.silent:
            what = f"pull at slice {backlog.silent[0]}"
            raise Unavailable(f"{what}: it does not answer, and no other slice has messages now", subject=what)
        return found

    async def ack(self, queue: Name, done: Iterable[Done], *, deadline_s: float | None = None) -> None:
        """These offsets are done for the queue, whoever has them; durable when this returns.

        What nobody has (never given, given back since, or acked already) is left as it is.
        """
        name = encode_name(queue, "queue")
        deadline = self._broker._deadline(deadline_s)
        left = [wire.Ack(key=encode_name(one.key, "key"), low=one.first, to=one.end, queues=[name]) for one in done]
        while left:
            groups: dict[str, list[wire.Ack]] = {}
            for ack in left:
                groups.setdefault(self._routing.map.current.owner_of(ack.key), []).append(ack)
            results = await asyncio.gather(*(self._ack_at(acks, deadline) for acks in groups.values()))
            left = [ack for again in results for ack in again]

    async def _look(
        self, slice_name: str, question: wire.Describe, deadline: float
    ) -> Sequence[wire.QueueDescription] | None:
        """None: no answer in time. One slice that is down does not hold up what the others have."""
        try:
            return (await self._routing.session(slice_name).ask(question, deadline)).description.queues
        except (OutcomeUnknown, MapOrLeaderChanged):
            return None

    async def _ack_at(self, acks: Sequence[wire.Ack], deadline: float) -> Sequence[wire.Ack]:
        """Acks of one slice. Returns those to group anew: their partitions may have parted in a move."""
        loop = asyncio.get_running_loop()
        part_deadline = min(deadline, loop.time() + LEASE_REGROUP_S)
        try:
            await self._calls.ask_slice(
                lambda: self._routing.map.current.owner_of(acks[0].key),
                _over_stub(lambda stub, s: stub.Ack(wire.AckRequest(acks=acks), timeout=s)),
                part_deadline,
            )
        except (MapOrLeaderChanged, OutcomeUnknown):
            remaining_s(deadline, "ack")
            return acks
        return ()

    async def _pull_from(self, slice_name: str, pull: wire.Pull, deadline: float) -> list[Message]:
        try:
            answer = await self._calls.ask_slice(
                lambda: slice_name,
                _over_stub(lambda stub, s: stub.Pull(wire.PullRequest(pull=pull), timeout=s)),
                deadline,
            )
        except NoSuchQueue:
            return []  # Dropped since.
        found: list[Message] = []
        for item in answer.deliveries:
            first: int = item.low
            delivery = Delivery(item, first, item.to, parse_chunk(item.chunk), (pull.queue,), _LEASED)
            found += delivery.messages()
        return found


def _over_stub(ask: Callable[[SliceServiceAsyncStub, float], Awaitable[Answer]]) -> Ask[Answer]:
    def call(channel: grpc.aio.Channel, timeout_s: float) -> Awaitable[Answer]:
        stub: SliceServiceAsyncStub = SliceServiceStub(channel)
        return ask(stub, timeout_s)

    return call


class _Leased:
    """Leased messages are acked by name: their own `ack` would need a session."""

    def ack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        raise RuntimeError("leased messages are acked with Leases.ack")

    def queue_of(self, consumer: int | bytes) -> bytes:
        assert isinstance(consumer, bytes), "leased messages have no handles"
        return consumer


_LEASED = _Leased()
