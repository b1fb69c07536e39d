"""Pulls, acks and nacks without a session, for programs that keep no connection: HTTP gateways, short scripts.

A pulled message belongs to its lease and not to a connection. Any process acks it by queue, key and offsets. If it is
not acked when the lease ends, it is given again. Not here: pulling for a connection (pulling.py), push (inbox.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from shoal.broker import Broker
from shoal.core.delivered import chunk_of
from shoal.core.merging import living_parts
from shoal.core.refusals import connection_closed, connection_cut, no_such_queue
from shoal.describing import Described, is_too_large
from shoal.gaps import OnGap, tell_gap
from shoal.limits import (
    LEASE_BACKLOGS_MAX,
    LEASE_LOOK_S,
    LEASE_REGROUP_S,
    PULL_BYTES_MAX,
    QUEUE_SIZES_MAX,
)
from shoal.messages import NO_PART, Delivery, Done, Message, PartLife
from shoal.telling import check_callback
from shoal.transport.base import Method, Request, Response
from shoal.transport.methods import ACK, NACK, PULL
from shoal.unreturned import Taken, Unreturned
from shoal.waiting import remaining_s
from shoal_contract.arguments import LEASE_MS, OFFSET, PULL_BYTES, PULL_MESSAGES, check_delay_ms, check_names
from shoal_contract.errors import (
    MapOrLeaderChanged,
    NoSuchQueue,
    OutcomeUnknown,
    OutOfRange,
    ResourceExhausted,
    ShoalError,
    TooLarge,
    Unavailable,
)
from shoal_contract.names import Name, direct_key, encode_name
from shoal_contract.wire import slice_pb2 as wire


class Backlog(NamedTuple):
    """Describes a queue's backlog, leased messages included. `slices`: the slices that hold some of it."""

    exists: bool
    """True if there is such a queue, as far as the slices that answered know."""
    messages: int
    """The number of messages in the backlog."""
    slices: tuple[str, ...]
    silent: tuple[str, ...]
    """Slices that did not answer in time, or had no room; their part of the backlog is not counted."""
    parts: tuple[str, ...] = ()
    """The slices that have a part of the queue, with some of the backlog or none."""
    refused: tuple[str, ...] = ()
    """Slices whose part of the queue is too large for them to count: it may have some of the backlog."""


class Leases:
    """Pulls and acks over an open broker's connection, and ends with it: `leases = shoal.Leases(broker)`."""

    def __init__(self, broker: Broker) -> None:
        self._connection = broker.connection
        self._routing = self._connection.routing
        self._calls = self._connection.calls
        self._bindings: dict[bytes, int] = {}
        """Queue -> its bindings when it was asked for last; at most QUEUE_SIZES_MAX."""

    def bindings_of(self, queue: Name) -> int | None:
        """Returns about how many bindings a queue had when it was last pulled, or its backlog asked for, through this
        object, on the slices that answered: what such a question costs slices. 0: nothing is bound there, and
        nothing was sent there yet. None: not known, or all answered and there is no such queue."""
        return self._bindings.get(encode_name(queue, "queue"))

    async def backlogs(self, queues: Sequence[Name], *, deadline_s: float | None = None) -> list[Backlog]:
        """Returns the backlogs of at most 1,000 different queues, in order, with one question to each slice; with more
        where a slice refuses to count so many bindings at a time.

        If a queue's home answers, it decides whether the queue exists, and what counts. Raises TooLarge, InvalidName.
        """
        asked = list(check_names("queue", queues))
        if len(asked) > LEASE_BACKLOGS_MAX:
            raise TooLarge(
                f"queues in one question: {len(asked)}; the limit is {LEASE_BACKLOGS_MAX}",
                subject="queues",
                limit=LEASE_BACKLOGS_MAX,
                value=len(asked),
            )
        deadline = min(self._connection.deadline(deadline_s), self._connection.deadline(LEASE_LOOK_S))
        names = self._routing.map.current.slices
        if self._routing.closed:
            raise connection_closed()
        describe = self._routing.describing.describe
        answers = await asyncio.gather(*(describe(name, asked, deadline) for name in names))
        return [
            self._backlog(queue, {name: answer[at] for name, answer in zip(names, answers, strict=True)})
            for at, queue in enumerate(asked)
        ]

    def _backlog(self, queue: bytes, answers: Mapping[str, Described]) -> Backlog:
        parts: dict[str, wire.QueueDescription] = {}
        silent: list[str] = []
        refused: list[str] = []
        bindings = 0
        for name, answer in answers.items():
            if not isinstance(answer, ShoalError):
                parts[name] = answer
                bindings += answer.binding_count
            elif is_too_large(answer):
                refused.append(name)
                bindings += answer.value
            elif isinstance(answer, OutcomeUnknown | ResourceExhausted):
                silent.append(name)
            else:
                raise answer
        may_exist = bool(silent or refused) or any(part.exists for part in parts.values())
        answered = len(silent) < len(answers)
        self._note_bindings(queue, bindings if may_exist and answered else None, bool(silent))
        home = parts.get(self._routing.map.current.owner_of(direct_key(queue)))
        if home is not None:
            living = living_parts(list(parts.values()), home)
            parts = {name: part for name, part in parts.items() if part in living}
        holding = tuple(name for name, part in parts.items() if part.messages)
        exists = bool(refused) or any(part.exists for part in parts.values())
        here = tuple(name for name, part in parts.items() if part.exists)
        messages = sum(part.messages for part in parts.values())
        return Backlog(exists, messages, holding, tuple(silent), here, tuple(refused))

    def _note_bindings(self, queue: bytes, bindings: int | None, silent: bool) -> None:
        """Remembers how many bindings a queue has on the slices that answered: 0 if it is only declared there, or if
        none of them has it while another slice is silent. None: nothing is known of its size, as no slice answered, or
        there is no such queue. `silent`: some did not answer, and may have as many as before."""
        before = self._bindings.pop(queue, None)
        if silent and before is not None:
            bindings = max(bindings or 0, before)
        if bindings is not None:
            self._bindings[queue] = bindings
        if len(self._bindings) > QUEUE_SIZES_MAX:
            self._bindings.pop(next(iter(self._bindings)))

    async def pull(
        self,
        queue: Name,
        messages: int,
        *,
        lease_ms: int,
        bytes_max: int = PULL_BYTES_MAX,
        on_gap: OnGap | None = None,
        deadline_s: float | None = None,
    ) -> list[Message]:
        """Takes up to `messages` messages now, about `bytes_max` bytes of bodies, for `lease_ms` milliseconds (> 0).

        Ack them with `Leases.ack`, or give them back with `Leases.nack`; their own `ack` and `nack` do not work. If a
        slice fails, the messages of the others are returned; if they have none, this raises Unavailable. Raises
        NoSuchQueue, OutOfRange. What a call took that ends otherwise, cancelled for example, is given back in the
        background, and is no delivery; so is a message that you give back with its own `give_back`. What a lost answer
        of a slice brought comes again when the lease ends.
        `on_gap`: as in `Broker.pull`; with it, slices are asked that have gaps alone.
        """
        check_callback("on_gap", on_gap)
        messages = PULL_MESSAGES.check(messages)
        lease_ms = LEASE_MS.within(1, LEASE_MS.high).check(lease_ms)
        bytes_max = PULL_BYTES.check(bytes_max)
        name = encode_name(queue, "queue")
        deadline = self._connection.deadline(deadline_s)
        backlog = (await self.backlogs([name], deadline_s=deadline_s))[0]
        if not backlog.exists and not backlog.silent:
            raise no_such_queue(name)
        others = [] if on_gap is None else [name for name in backlog.parts if name not in backlog.slices]
        pull = wire.Pull(queue=name, messages_max=messages, bytes_max=bytes_max, lease_ms=lease_ms)
        slices = (*backlog.slices, *backlog.refused, *others)
        self._calls.check_open()
        taken = Taken()
        found = await self._connection.unreturned.pull(
            taken, self._pull_from_all(slices, pull, taken, on_gap, deadline)
        )
        if not found and backlog.silent:
            what = f"pull at slice {backlog.silent[0]}"
            raise Unavailable(f"{what}: it does not answer, and no other slice has messages now", subject=what)
        return found

    async def ack(self, queue: Name, done: Iterable[Done], *, deadline_s: float | None = None) -> None:
        """Acks these offsets for the queue, whichever consumer has them; the acks are durable when this returns.

        Offsets that no consumer has (never given, given back since, or acked already) are left as they are. An inbox
        does not hear of it: to ack what it handed out in this way, open it with `drop_repeats=False`.
        Raises InvalidName, OutOfRange, DeadlineExceeded.
        """
        name = encode_name(queue, "queue")
        left = [_ack(name, one) for one in done]
        await self._settle(left, ACK, lambda acks: wire.AckRequest(acks=acks), deadline_s)

    async def nack(
        self, queue: Name, back: Iterable[Done], *, delay_s: float = 0, deadline_s: float | None = None
    ) -> None:
        """Gives these offsets back for the queue, whichever consumer has them: they are delivered again, no earlier
        than after `delay_s` seconds (up to a day).

        Offsets that no consumer has (never given, given back since, or acked already) are left as they are. An inbox
        hands out again what it had of them only if it was opened with `drop_repeats=False`.
        Raises InvalidName, OutOfRange, DeadlineExceeded; ResourceExhausted if a slice has no room for more delays.
        """
        name = encode_name(queue, "queue")
        delay_ms = check_delay_ms(delay_s)
        left = [_ack(name, one) for one in back]

        def request(nacks: Sequence[wire.Ack]) -> wire.NackRequest:
            return wire.NackRequest(nacks=wire.Nacks(messages=nacks, delay_ms=delay_ms))

        await self._settle(left, NACK, request, deadline_s)

    async def _settle(
        self,
        left: Sequence[wire.Ack],
        method: Method[Request, Response],
        request: Callable[[Sequence[wire.Ack]], Request],
        deadline_s: float | None,
    ) -> None:
        """Sends acks, or nacks, to the slices of their keys."""
        deadline = self._connection.deadline(deadline_s)
        self._calls.check_open()
        while left:
            groups: dict[str, list[wire.Ack]] = {}
            for ack in left:
                groups.setdefault(self._routing.map.current.owner_of(ack.key), []).append(ack)
            results = await asyncio.gather(
                *(self._settle_at(acks, method, request(acks), deadline) for acks in groups.values())
            )
            left = [ack for again in results for ack in again]
            if left and self._calls.closed:
                raise connection_cut()

    async def _settle_at(
        self, acks: Sequence[wire.Ack], method: Method[Request, Response], request: Request, deadline: float
    ) -> Sequence[wire.Ack]:
        """Sends the acks, or nacks, of one slice. Returns those to group anew: a move may have given their partitions
        to different slices."""
        loop = asyncio.get_running_loop()
        part_deadline = min(deadline, loop.time() + LEASE_REGROUP_S)
        try:
            await self._calls.ask_slice(
                lambda: self._routing.map.current.owner_of(acks[0].key),
                method,
                request,
                part_deadline,
            )
        except (MapOrLeaderChanged, OutcomeUnknown):
            remaining_s(deadline, "ack or nack")
            return acks
        return ()

    async def _pull_from_all(
        self, slices: Iterable[str], wanted: wire.Pull, taken: Taken, on_gap: OnGap | None, deadline: float
    ) -> None:
        """Asks the slices one after the other, until `taken` has what is wanted, or is not wanted any more."""
        messages, bytes_ = wanted.messages_max, wanted.bytes_max
        for slice_name in slices:
            if taken.left or messages <= 0 or bytes_ <= 0:
                return
            pull = wire.Pull(
                queue=wanted.queue,
                messages_max=messages,
                bytes_max=min(bytes_, PULL_BYTES_MAX),
                lease_ms=wanted.lease_ms,
            )
            try:
                found = await self._pull_from(slice_name, pull, on_gap, deadline)
            except ShoalError:
                if taken.found:
                    return  # The caller gets what was taken.
                raise
            taken.found += found
            messages -= len(found)
            bytes_ -= sum(len(message.body) for message in found)

    async def _pull_from(
        self, slice_name: str, pull: wire.Pull, on_gap: OnGap | None, deadline: float
    ) -> list[Message]:
        while True:
            asked_s = asyncio.get_running_loop().time()
            try:
                answer = await self._calls.ask_slice(lambda: slice_name, PULL, wire.PullRequest(pull=pull), deadline)
            except NoSuchQueue:
                return []  # The queue was dropped since.
            for gap in answer.gaps:
                tell_gap(on_gap, gap, (pull.queue,))
            if answer.deliveries or not answer.gaps:
                break  # Else there may be messages behind more gaps.
        leased = _Leased(self._connection.unreturned, asked_s + pull.lease_ms / 1000)
        found: list[Message] = []
        for item in answer.deliveries:
            first: int = item.low
            delivery = Delivery(item, first, item.to, chunk_of(item), (pull.queue,), leased)
            found += delivery.messages()
        return found


def _ack(queue: bytes, done: object) -> wire.Ack:
    """Returns one range as an ack. Raises TypeError, InvalidName, OutOfRange."""
    if not isinstance(done, Done):
        raise TypeError(f"done must hold shoal.Done(key, first, end), not {type(done).__name__}")
    first, end = OFFSET.check(done.first), OFFSET.check(done.end)
    if end <= first:
        problem = f"offsets {first} to {end} are none: end is the first that is not meant"
        raise OutOfRange(problem, subject="end", limit=first + 1, value=end)
    ack = wire.Ack(key=encode_name(done.key, "key"), to=end, queues=[queue])
    ack.low = first
    return ack


class _Leased:
    """Refuses acks of messages that a slice leased: they are acked by name, as their own `ack` would need a session.
    `until_s`: event loop time up to which their lease lasts in any case."""

    def __init__(self, unreturned: Unreturned, until_s: float) -> None:
        self._unreturned = unreturned
        self._until_s = until_s

    def ack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        raise RuntimeError("leased messages are acked with Leases.ack")

    def nack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes], delay_ms: int) -> None:
        raise RuntimeError("leased messages are nacked with Leases.nack")

    def give_back(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        for queue in consumers:
            self._unreturned.give_back(self.queue_of(queue), delivery.key_bytes, first, end, self._until_s)

    def check_call(self) -> None:
        raise RuntimeError("leased messages are acked with Leases.ack")

    def queue_of(self, consumer: int | bytes) -> bytes:
        assert isinstance(consumer, bytes), "leased messages have no handles"
        return consumer

    def part_of(self, consumer: int | bytes) -> PartLife:
        return NO_PART
