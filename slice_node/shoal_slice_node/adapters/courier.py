"""Brings letters to the slices that own their keys: publishes each there, and tells the node when it is there.

However often a letter is sent, there is one copy: it has a producer of its own, and its slice answers a repeat with the
first answer. A refusal is an answer too: after one, the letter is sent with the next number. So at most one number is
ever accepted: none follows one that was not refused. A new leader, which does not know the number, is told it.

Letters are dead letters, and farewells. Not here: what becomes a letter (core/dispatch/returns, core/apply/farewells),
what is in it (core/dispatch/letters, core/dispatch/farewells), which of them is next, and how long others pause
(core/dispatch/letter_lines).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import grpc.aio

from shoal_contract.errors import NotLeader, OutcomeUnknown, OutOfRange, ResourceExhausted, ShoalError, Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import REQUEST_BYTES_MAX
from shoal_contract.names import show
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_coordination.cluster_view import ClusterView
from shoal_runtime.channels import open_channel
from shoal_runtime.tasks import Tasks
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.commit_loop import WholeRecords
from shoal_slice_node.adapters.limits import (
    COURIER_CALL_S,
    COURIER_LETTERS,
    COURIER_NUMBERS_MAX,
    COURIER_TOLD_MAX,
)
from shoal_slice_node.adapters.steps import StepWatch
from shoal_slice_node.core.dispatch.letters import FIRST_SEQUENCE

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

_log = logging.getLogger(__name__)
_OPTIONS = [("grpc.max_send_message_length", REQUEST_BYTES_MAX), ("grpc.enable_retries", 0)]


@dataclass(slots=True)
class _Leader:
    """Holds the channel to a slice's leader. `under_way`: letters sent to it and not answered. `failure`: why it did
    not answer the last one; until it does, one letter at a time tries it, so that it does not hold up the others."""

    channel: grpc.aio.Channel
    under_way: int = 0
    failure: ShoalError | None = None


class Letter(Protocol):
    """Describes what is published, at which key, and by which producer."""

    @property
    def key(self) -> bytes: ...

    @property
    def producer(self) -> bytes: ...

    @property
    def chunk(self) -> bytes: ...


class Letters(Protocol):
    """Gives letters of one kind, and is told what became of each. `now_ms`: the time of a clock that only grows."""

    def ready(self, now_ms: int) -> bool: ...

    def take(self, now_ms: int) -> Letter | None: ...

    def sent(self, letter: Any) -> None: ...

    def not_sent(self, letter: Any, now_ms: int, full: bool = False) -> None: ...


class Courier:
    """Sends letters, COURIER_LETTERS at a time, until they are answered."""

    def __init__(
        self,
        letters: Sequence[Letters],
        between_records: WholeRecords,
        may_send: Callable[[], None],
        steps: StepWatch | None = None,
    ) -> None:
        """`may_send`: raises Fenced once this node may not lead any more. `steps`: measures how long a letter takes
        from the loop."""
        self._steps = steps or StepWatch()
        self._letters = letters
        self._between_records = between_records
        self._may_send = may_send
        self._view: ClusterView | None = None
        self._leaders: dict[str, _Leader] = {}
        """Maps an address to the leader there: those of the view that had a letter."""
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        """Maps a producer to the number for a letter that was refused. At most COURIER_NUMBERS_MAX."""
        self._turn = 0
        """Which kind of letters was asked last."""
        self._wake = asyncio.Event()
        self._taking = asyncio.Lock()
        """Others have the loop between two letters that are made."""
        self._told: dict[bytes, type[ShoalError]] = {}
        """Maps a key that takes no letters to the kind of failure that was logged. At most COURIER_TOLD_MAX."""

    def follow(self, view: ClusterView) -> None:
        """Takes the cluster as it is now: which slice owns which keys, and where its leader is."""
        self._view = view

    def look(self) -> None:
        """Wakes the courier if letters may be sent. Must be called from time to time."""
        now_ms = steady_ms()
        if any(letters.ready(now_ms) for letters in self._letters):
            self._wake.set()

    async def run(self) -> None:
        """Sends letters as they come, until it is cancelled."""
        try:
            async with Tasks("courier") as tasks:
                names = (f"carrier {number}" for number in range(COURIER_LETTERS))
                await asyncio.gather(*(tasks.start(name, self._carry(), awaited=True) for name in names))
        finally:
            for leader in self._leaders.values():
                with suppress(asyncio.CancelledError):
                    await leader.channel.close()

    async def _carry(self) -> None:
        """Sends one letter after the other."""
        while True:
            await self._close_unused()
            async with self._taking:
                await asyncio.sleep(0)
                await self._between_records.wait()
                began = time.perf_counter()
                taken = self._take()
                self._steps.done(began)
            if taken is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            letters, letter = taken
            failure = await self._send(letter)
            await self._between_records.wait()
            began = time.perf_counter()
            if failure is None:
                letters.sent(letter)
            else:
                letters.not_sent(letter, steady_ms(), _full(failure, letter))
            self._tell(letter.key, failure)
            self._steps.done(began)

    def _take(self) -> tuple[Letters, Letter] | None:
        """Takes a letter, of each kind in turn. Returns None if none may be sent now."""
        for _ in self._letters:
            self._turn = (self._turn + 1) % len(self._letters)
            letters = self._letters[self._turn]
            letter = letters.take(steady_ms())
            if letter is not None:
                return letters, letter
        return None

    async def _send(self, letter: Letter) -> ShoalError | None:
        """Sends a letter, unless its slice answers nothing. Returns why it is not known to be there; None: it is."""
        try:
            self._may_send()
            leader = self._leader_for(letter.key)
        except ShoalError as error:
            return error
        if leader.failure is not None and leader.under_way:
            return leader.failure
        leader.under_way += 1
        try:
            failure = await self._publish(SliceServiceStub(leader.channel), letter)
        finally:
            leader.under_way -= 1
        leader.failure = failure if isinstance(failure, OutcomeUnknown) else None
        return failure

    async def _publish(self, stub: SliceServiceAsyncStub, letter: Letter) -> ShoalError | None:
        """Publishes a letter with its number. Returns why it is not known to be there; None: it is."""
        sequence = self._numbers.get(letter.producer, FIRST_SEQUENCE)
        failure = await _publish_as(stub, letter, sequence)
        if isinstance(failure, OutOfRange) and failure.subject == "sequence" and failure.limit > sequence:
            sequence = failure.limit  # A leader before this one sent it so often, or the number was forgotten here.
            failure = await _publish_as(stub, letter, sequence)
        self._numbers.pop(letter.producer, None)
        if failure is not None:
            self._numbers[letter.producer] = sequence + 1 if _decided(failure, letter) else sequence
            if len(self._numbers) > COURIER_NUMBERS_MAX:
                self._numbers.popitem(last=False)
        return failure

    def _leader_for(self, key: bytes) -> _Leader:
        """Returns the leader of the slice that owns the key. Raises Unavailable if there is none."""
        view = self._view
        owner = "" if view is None else view.map.owner_of(key)
        address = "" if view is None or not view.leads(owner) else view.slices[owner].leader_address
        if not address:
            raise Unavailable(f"slice {owner}, which owns key {show(key)}, has no leader", subject=owner)
        leader = self._leaders.get(address)
        if leader is None:
            leader = self._leaders[address] = _Leader(open_channel(address, _OPTIONS))
        return leader

    async def _close_unused(self) -> None:
        """Closes the channels to what leads no slice any more, once nothing is under way there."""
        view = self._view
        leading = set() if view is None else {record.leader_address for record in view.slices.values()}
        for address, leader in list(self._leaders.items()):
            if address not in leading and not leader.under_way:
                del self._leaders[address]
                await leader.channel.close()

    def _tell(self, key: bytes, failure: ShoalError | None) -> None:
        """Logs that a key takes no letters, once until it does."""
        if failure is None:
            self._told.pop(key, None)
        elif self._told.get(key) is not type(failure) and (key in self._told or len(self._told) < COURIER_TOLD_MAX):
            self._told[key] = type(failure)
            owner = "another slice" if self._view is None else f"slice {self._view.map.owner_of(key)}"
            _log.warning(
                "dead letters or farewells for %s wait, and are sent again: %s. Until then this slice keeps them;"
                " farewells that a full key refuses for an hour end",
                owner,
                failure.message,
            )


async def _publish_as(stub: SliceServiceAsyncStub, letter: Letter, sequence: int) -> ShoalError | None:
    request = wire.PublishRequest(
        key=letter.key, chunk=Chunk.FromString(letter.chunk), producer=letter.producer, sequence=sequence
    )
    try:
        await stub.Publish(request, timeout=COURIER_CALL_S)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
    return None


def _full(failure: ShoalError, letter: Letter) -> bool:
    """Returns whether the letter's key refused it because it is at its capacity."""
    return isinstance(failure, ResourceExhausted) and _decided(failure, letter)


def _decided(failure: ShoalError, letter: Letter) -> bool:
    """Returns whether the slice's tables refused the publish, so that a repeat would get the same answer: the error is
    about the key. After any other error the publish may still come to be done, so its number stays."""
    return not isinstance(failure, OutcomeUnknown | NotLeader) and failure.subject == show(letter.key)
