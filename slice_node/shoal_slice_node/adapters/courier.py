"""Brings dead letters to the slices that own their keys: publishes each there, and tells the node when it is there.

However often a letter is sent, there is one copy: it has a producer of its own, and its slice answers a repeat with the
first answer. Not here: which messages become letters (core/dispatch/returns), what is in them (core/dispatch/letters).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

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
from shoal_slice_node.core.dispatch.letters import SEQUENCE, Letter, Letters

_log = logging.getLogger(__name__)
_OPTIONS = [("grpc.max_send_message_length", REQUEST_BYTES_MAX), ("grpc.enable_retries", 0)]


class Courier:
    """Sends letters, COURIER_LETTERS at a time, until they are answered. Those that fail are sent again after
    COURIER_AGAIN_S."""

    def __init__(self, letters: Letters, between_records: WholeRecords, may_send: Callable[[], None]) -> None:
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
        if self._letters:
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
            taken = [letter for letter in (self._letters.take() for _ in range(COURIER_LETTERS)) if letter is not None]
            if not taken:
                return
            failures = await asyncio.gather(*map(self._send, taken))
            await self._between_records.wait()
            for letter, failure in zip(taken, failures, strict=True):
                if failure is None:
                    self._letters.sent(letter)
                else:
                    self._letters.not_sent(letter)
            failure = next((failure for failure in failures if failure is not None), None)
            self._tell(failure)
            if failure is not None:
                await asyncio.sleep(COURIER_AGAIN_S)

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
                "dead letters for another slice wait, and are sent again: %s. Their messages stay in their queues", told
            )
        self._told = told
