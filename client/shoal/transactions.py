"""Transactions: publishes, declares, configures, binds, unbinds and acks of one slice, all in one record or none.

They gather while the block of `async with` runs, and are sent as one frame at its end. A refusal leaves no trace on the
slice, so where it only says that the map or a queue's life was not known well, the same is sent again, anew.

A bind needs the queue's part on this slice, which is often not its home. The part is declared in the same frame, in the
life that the home says, and after the commit the home is asked once more (binding_calls.py says why).
Not here: the frame (core/transaction_frame.py), what was taken (transaction_steps.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from random import random
from types import TracebackType
from typing import Any, overload

from shoal.binding_calls import BindingCalls
from shoal.core import publishing
from shoal.core.acks import LIFE_LEFT
from shoal.core.backoff import Backoff
from shoal.core.known_queues import KnownQueues, Life
from shoal.core.offset_ranges import with_range
from shoal.core.publish_requests import publish_terms
from shoal.core.refusals import left_inbox, no_such_queue
from shoal.core.requests import BindRequest, ConfigureRequest, DeclareRequest, QueueRequest, Request, UnbindRequest
from shoal.core.transaction_frame import TransactionFrame
from shoal.homes import Homes
from shoal.messages import NO_PART, NOW, Delivery, Done, Message, PartLife, Receipt, Start, check_acked, check_start
from shoal.routing import Routing
from shoal.transaction_steps import Acks, Slot, Step, StepRoom, TransactionResult, ack_requests, check_bounds
from shoal_contract.arguments import OFFSET, Body, check_body, check_flag, check_headers, check_names
from shoal_contract.errors import (
    Conflict,
    CrossSlice,
    MapOrLeaderChanged,
    NoSuchQueue,
    OutOfRange,
    ShoalError,
)
from shoal_contract.names import Name, check_bindable_key, direct_key, encode_name, show
from shoal_contract.options import DURABLE, KeyOptions, QueueOptions, check_key_options, check_queue_options


class Transaction:
    """Gathers changes to one slice, and commits them when its block ends: all of them, or none.

    ```python
    async with broker.transaction() as tx:
        receipt = tx.publish("{room-7}talk", b"hello")
        tx.bind("inbox-anna", "{room-7}talk")
        tx.ack(message)
    print(receipt.value.offset)
    ```

    Made by `Broker.transaction`. If the block raises, nothing is sent. A change that makes it more than 1,000 keys and
    queues, or 2 MiB, raises TooLarge; with acks, and parts of queues that binds need, the end of the block does, before
    anything is sent. The end of the block raises CrossSlice if the keys lie on several slices; the error of the first
    change that the slice refused, and then nothing of the transaction was done; DeadlineExceeded and Unavailable, if it
    is not known whether it was done. Keys that begin with the same tag, `{room-7}`, lie together.
    """

    def __init__(self, routing: Routing, homes: Homes, known: KnownQueues, deadline: Callable[[], float]) -> None:
        """`deadline`: returns the deadline, event loop time; called when the block ends."""
        self._routing = routing
        self._homes = homes
        self._known = known
        self._bindings = BindingCalls(routing, homes, known)
        self._deadline = deadline
        self._steps: list[Step | Acks] = []
        self._room = StepRoom()
        self._acked: list[Message | Delivery] = []
        self._first: tuple[str, str] | None = None
        """The first key, as text, and its slice."""
        self._open = False
        self._over = False

    async def __aenter__(self) -> Transaction:
        if self._open or self._over:
            raise RuntimeError("a transaction has one block; make another one with broker.transaction()")
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open, self._over = False, True
        if kind is None and self._steps:
            await self._commit(self._deadline())
            for one in self._acked:  # The slice has them. What handed them out must know it, too.
                with contextlib.suppress(ShoalError):
                    one.ack_nowait()

    # Changes.

    def declare(self, queues: Name | Iterable[Name], options: QueueOptions = DURABLE) -> None:
        """Declares one or many queues, as `Broker.declare` does. Their home must be this slice: a queue whose name
        begins with the keys' tag has its home there. Raises CrossSlice; the end of the block raises Conflict."""
        names = check_names("queue", queues)
        self._room.check_names(len(names))
        check_queue_options(options).check_dead_letter(names)
        self._add(
            Step(
                lambda deadline, _, queue=queue: DeclareRequest(queue, options, 0, deadline),  # type: ignore[misc]
                [(direct_key(queue), f"the home of queue {show(queue)}")],
            )
            for queue in names
        )

    def configure(self, keys: Name | Iterable[Name], options: KeyOptions) -> None:
        """Gives keys options, as `Broker.configure` does; later steps see them. Raises CrossSlice."""
        names = check_names("key", keys)
        self._room.check_names(len(names))
        check_key_options(options)
        for key in names:
            check_bindable_key(key)
        self._add(
            Step(
                lambda deadline, _, key=key: ConfigureRequest(key, options, deadline),  # type: ignore[misc]
                [(key, f"key {show(key)}")],
            )
            for key in names
        )

    @overload
    def bind(  # type: ignore[overload-overlap]  # a name is one key, never an iterable of them
        self, queue: Name, keys: Name, *, start: Start = NOW
    ) -> TransactionResult[int]: ...

    @overload
    def bind(self, queue: Name, keys: Iterable[Name], *, start: Start = NOW) -> TransactionResult[dict[Name, int]]: ...

    def bind(self, queue: Name, keys: Name | Iterable[Name], *, start: Start = NOW) -> TransactionResult[Any]:
        """Binds a queue to keys, as `Broker.bind` does; the queue may have its home elsewhere. The result is the first
        offset that will be seen, or key -> offset. Raises CrossSlice. The end of the block raises
        NoSuchQueue, OutOfRange."""
        check_start(start)
        return self._bindings_step(queue, keys, lambda *named: BindRequest(named[0], named[1], start, named[2]))

    @overload
    def unbind(  # type: ignore[overload-overlap]  # as for bind
        self, queue: Name, keys: Name, *, discard: bool = False
    ) -> TransactionResult[int]: ...

    @overload
    def unbind(
        self, queue: Name, keys: Iterable[Name], *, discard: bool = False
    ) -> TransactionResult[dict[Name, int]]: ...

    def unbind(self, queue: Name, keys: Name | Iterable[Name], *, discard: bool = False) -> TransactionResult[Any]:
        """Ends bindings, as `Broker.unbind` does. The result is the first offset that will not be seen (0: was not
        bound), or key -> offset. Raises CrossSlice. The end of the block raises NoSuchQueue."""
        check_flag("discard", discard)
        return self._bindings_step(queue, keys, lambda *named: UnbindRequest(named[0], named[1], discard, named[2]))

    def publish(
        self,
        key: Name,
        body: Body,
        *,
        headers: Mapping[str, Body] | None = None,
        mandatory: bool = False,
        not_before: datetime | float | None = None,
        ttl: float | None = None,
    ) -> TransactionResult[Receipt]:
        """Publishes one message, as `Broker.publish` does. The result is its receipt. Raises CrossSlice, TooLarge;
        the end of the block raises Unroutable if `mandatory` and no queue is bound, by this transaction either."""
        name, data = encode_name(key, "key"), check_body(body)
        fields = None if headers is None else check_headers(headers)
        terms = publish_terms(mandatory, not_before, False, ttl)
        result: TransactionResult[Receipt] = TransactionResult()

        def make(deadline: float, slot: Slot) -> Request:
            return publishing.single(key, name, data, fields, terms, deadline, slot)

        self._add([Step(make, [(name, f"key {show(name)}")], None, result.take)])
        return result

    def ack(self, *messages: Message | Delivery) -> None:
        """Acks messages or deliveries of this slice. Raises CrossSlice; the end of the block raises Conflict if one of
        them is acked already, by any consumer: of all that got a message, one transaction with its ack is done. So it
        does if the queue was dropped, and declared anew, since the message was given. Raises Conflict if the queue has
        left the inbox since: others may have the message."""
        check_acked(messages)
        named = [(one, one.parts) for one in messages]
        for _, parts in named:
            for queue, part in parts:
                if part.life == LIFE_LEFT:
                    raise left_inbox(queue)
        for one, parts in named:
            first, end = (one.offset, one.offset + 1) if isinstance(one, Message) else (one.first, one.end)
            for queue, part in parts:
                self._add_acks(queue, part, one.key_bytes, first, end)
        self._acked += messages

    def ack_done(self, queue: Name, done: Iterable[Done]) -> None:
        """Acks messages by key and offsets, whichever consumer has them, as `Leases.ack` does; the end of the
        block raises Conflict as with `ack`.
        Raises OutOfRange, CrossSlice."""
        name = encode_name(queue, "queue")
        named = [(encode_name(one.key, "key"), OFFSET.check(one.first), OFFSET.check(one.end)) for one in done]
        for _, first, end in named:
            if not 0 < first < end:
                what = f"offsets {first} to {end} hold none: first is at least 1, and end is the one behind the last"
                raise OutOfRange(what, subject="end", limit=first, value=end)
        for key, first, end in named:
            self._add_acks(name, NO_PART, key, first, end)

    def _bindings_step(
        self,
        queue: Name,
        keys: Name | Iterable[Name],
        request: Callable[[bytes, Sequence[bytes], float], QueueRequest],
    ) -> TransactionResult[Any]:
        name = encode_name(queue, "queue")
        encoded = check_names("key", keys)
        self._room.check_names(len(encoded))
        result: TransactionResult[Any] = TransactionResult()
        one = isinstance(keys, str | bytes)

        def make(deadline: float, slot: Slot) -> Request:
            made = request(name, list(encoded), deadline)
            made.waiter = slot
            return made

        def take(offsets: Sequence[int]) -> None:
            result.take(offsets[0] if one else dict(zip(encoded.values(), offsets, strict=True)))

        self._add([Step(make, [(key, f"key {show(key)}") for key in encoded], name, take)])
        return result

    def _add(self, steps: Iterable[Step]) -> None:
        """Takes the steps of one call, all of them or none."""
        self._check_open()
        steps = list(steps)
        requests = [step.make(0.0, Slot()) for step in steps]
        for step in steps:
            for key, what in step.keys:
                self._check_slice(key, what)
        self._room.take(requests)
        self._steps += steps

    def _add_acks(self, queue: bytes, part: PartLife, key: bytes, first: int, end: int) -> None:
        self._check_open()
        self._check_slice(key, f"key {show(key)}")
        if not (self._steps and isinstance(self._steps[-1], Acks)):
            self._steps.append(Acks({}))
        last = self._steps[-1]
        assert isinstance(last, Acks)
        binding = queue, part, key
        last.ranges[binding] = with_range(last.ranges.get(binding, ()), first, end)[0]

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError("a transaction takes changes within its block: async with broker.transaction() as tx")

    def _check_slice(self, key: bytes, what: str) -> None:
        """Raises CrossSlice if the key lies on another slice than the first one."""
        owner = self._routing.map.current.owner_of(key)
        if self._first is None:
            self._first = (what, owner)
        elif owner != self._first[1]:
            raise CrossSlice(
                f"{what} is on slice {owner}, and {self._first[0]} on slice {self._first[1]}: a transaction is of one"
                " slice; names that begin with the same tag in braces lie together",
                subject=show(key),
            )

    # The commit.

    async def _commit(self, deadline: float) -> None:
        backoff, fresh = Backoff(random), False
        while True:
            version = self._routing.map.current.version
            slice_name = self._slice_now()
            lives, believed = await self._lives(slice_name, fresh, deadline)
            try:
                await self._send(slice_name, lives, deadline)
                break
            except MapOrLeaderChanged as error:
                await self._routing.newer_map(version, [error], backoff, deadline)
            except (NoSuchQueue, Conflict):
                if not believed:
                    raise
                fresh = True  # Nothing was done. What was known of some queue may be out of date.
        for queue, life in lives.items():
            with contextlib.suppress(ShoalError):  # It is committed; the queue may have been dropped since.
                await self._bindings.still_lives(queue, {slice_name: life}, deadline)
        for queue in self._guests(slice_name):
            self._known.part_seen(queue, slice_name)

    def _slice_now(self) -> str:
        """Returns the slice of all keys, by the map as it is now. Raises CrossSlice."""
        self._first = None
        for step in self._steps:
            named = step.keys if isinstance(step, Step) else [(key, f"key {show(key)}") for *_, key in step.ranges]
            for key, what in named:
                self._check_slice(key, what)
        assert self._first is not None, "there is no step without a key"
        return self._first[1]

    def _guests(self, slice_name: str) -> list[bytes]:
        """Returns the queues that must have a part on the slice, and have their home elsewhere."""
        queues = dict.fromkeys(step.queue for step in self._steps if isinstance(step, Step) and step.queue is not None)
        return [queue for queue in queues if self._homes.home_of(queue) != slice_name]

    async def _lives(self, slice_name: str, fresh: bool, deadline: float) -> tuple[dict[bytes, Life], bool]:
        """Returns the queues whose part is to be declared, each with its life; and whether this relies on what was
        known before. `fresh`: ask the homes of all. Raises NoSuchQueue."""
        guests, believed = self._guests(slice_name), False
        lives: dict[bytes, Life] = {}
        for queue in guests:
            if fresh:
                self._known.forget(queue)
            elif self._known.has_part(queue, slice_name):
                believed = True
                continue
            now = asyncio.get_running_loop().time()
            life = self._known.life_of(queue, now)
            if life is not None:
                believed = True
            else:
                life = await self._homes.life_of(queue, deadline)
                if life is None:
                    raise no_such_queue(queue)
                self._known.declared(queue, life, self._homes.home_of(queue), now)
            lives[queue] = life
        return lives, believed

    async def _send(self, slice_name: str, lives: Mapping[bytes, Life], deadline: float) -> None:
        """Sends all as one frame, and gives the answers to the results. Raises the slice's refusal of the whole."""
        requests: list[Request] = [
            DeclareRequest(queue, life.options, life.incarnation, deadline) for queue, life in lives.items()
        ]
        slots: list[tuple[Step, Slot]] = []
        for step in self._steps:
            if isinstance(step, Acks):
                requests += ack_requests(step, slice_name, deadline)
            else:
                slots.append((step, Slot()))
                requests.append(step.make(deadline, slots[-1][1]))
        check_bounds(requests)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await self._routing.submit_change(slice_name, TransactionFrame(requests, deadline, waiter))
            await waiter
        finally:
            waiter.cancel()
        for step, slot in slots:
            step.take(slot.answer)
