"""Brings letters to the slices that own their keys: publishes each there, and tells the node when it is there.

However often a letter is sent, there is one copy: it has a producer of its own, and its slice answers a repeat with the
first answer. Letters are dead letters, and farewells. Not here: what becomes a letter (core/dispatch/returns,
core/apply/farewells), what is in it (core/dispatch/letters, core/dispatch/farewells).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import cycle
from typing import Any, Protocol

import grpc.aio

from shoal_contract.errors import ShoalError, Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import REQUEST_BYTES_MAX
from shoal_contract.names import show
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_coordination.cluster_view import ClusterView
from shoal_runtime.channels import open_channel
from shoal_slice_node.adapters.commit_loop import WholeRecords
from shoal_slice_node.adapters.limits import COURIER_AGAIN_S, COURIER_CALL_S, COURIER_LETTERS
from shoal_slice_node.core.dispatch.letters import SEQUENCE

_log = logging.getLogger(__name__)
_OPTIONS = [("grpc.max_send_message_length", REQUEST_BYTES_MAX), ("grpc.enable_retries", 0)]


class Letter(Protocol):
    """Describes what is published, at which key, and by which producer."""

    @property
    def key(self) -> bytes: ...

    @property
    def producer(self) -> bytes: ...

    @property
    def chunk(self) -> bytes: ...


class Letters(Protocol):
    """Gives letters of one kind, and is told what became of each."""

    def __bool__(self) -> bool: ...

    def take(self) -> Letter | None: ...

    def sent(self, letter: Any) -> None: ...

    def not_sent(self, letter: Any) -> None: ...


class Courier:
    """Sends letters, COURIER_LETTERS at a time, until they are answered. Those that fail are sent again after
    COURIER_AGAIN_S."""

    def __init__(self, letters: Sequence[Letters], between_records: WholeRecords, may_send: Callable[[], None]) -> None:
        """`may_send`: raises Fenced once this node may not lead any more."""
        self._letters = letters
        self._between_records = between_records
        self._may_send = may_send
        self._view: ClusterView | None = None
        self._channels: dict[str, grpc.aio.Channel] = {}
        """By address; of the leaders in the view that had a letter."""
        self._wake = asyncio.Event()
        self._told = ""
        """The last reason that was logged, so that it is logged once."""

    def follow(self, view: ClusterView) -> None:
        """Takes the cluster as it is now: which slice owns which keys, and where its leader is."""
        self._view = view

    def look(self) -> None:
        """Wakes the courier if letters wait. Must be called from time to time."""
        if any(self._letters):
            self._wake.set()

    async def run(self) -> None:
        """Sends letters as they come, until it is cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._send_all()
        finally:
            for channel in self._channels.values():
                with suppress(asyncio.CancelledError):
                    await channel.close()

    async def _send_all(self) -> None:
        while True:
            await self._close_unused()
            await self._between_records.wait()
            taken = self._take()
            if not taken:
                return
            failures = await asyncio.gather(*(self._send(letter) for _, letter in taken))
            await self._between_records.wait()
            for (letters, letter), failure in zip(taken, failures, strict=True):
                if failure is None:
                    letters.sent(letter)
                else:
                    letters.not_sent(letter)
            failure = next((failure for failure in failures if failure is not None), None)
            self._tell(failure)
            if failure is not None:
                await asyncio.sleep(COURIER_AGAIN_S)

    def _take(self) -> list[tuple[Letters, Letter]]:
        """Takes up to COURIER_LETTERS letters, of each kind in turn."""
        taken: list[tuple[Letters, Letter]] = []
        left = list(self._letters)
        for letters in cycle(self._letters):
            if letters in left:
                letter = letters.take()
                if letter is None:
                    left.remove(letters)
                else:
                    taken.append((letters, letter))
            if not left or len(taken) >= COURIER_LETTERS:
                return taken
        return taken

    async def _send(self, letter: Letter) -> ShoalError | None:
        """Publishes a letter. Returns why it is not known to be there; None: it is."""
        request = wire.PublishRequest(
            key=letter.key, chunk=Chunk.FromString(letter.chunk), producer=letter.producer, sequence=SEQUENCE
        )
        try:
            self._may_send()
            stub = SliceServiceStub(self._channel_to(letter.key))
            await stub.Publish(request, timeout=COURIER_CALL_S)
        except ShoalError as error:
            return error
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error)
        return None

    def _channel_to(self, key: bytes) -> grpc.aio.Channel:
        """Returns the channel to the leader of the slice that owns the key. Raises Unavailable if there is none."""
        view = self._view
        owner = "" if view is None else view.map.owner_of(key)
        record = None if view is None else view.slices.get(owner)
        address = "" if record is None else record.leader_address
        if not address:
            raise Unavailable(f"slice {owner}, which owns key {show(key)}, has no leader", subject=owner)
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address, _OPTIONS)
        return channel

    async def _close_unused(self) -> None:
        """Closes the channels to what leads no slice any more."""
        view = self._view
        leaders = set() if view is None else {record.leader_address for record in view.slices.values()}
        for address in [address for address in self._channels if address not in leaders]:
            await self._channels.pop(address).close()

    def _tell(self, failure: ShoalError | None) -> None:
        told = "" if failure is None else failure.message
        if told and told != self._told:
            _log.warning(
                "dead letters or farewells for another slice wait, and are sent again: %s. Until then this slice keeps"
                " them",
                told,
            )
        self._told = told
