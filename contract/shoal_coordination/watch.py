"""Watches a prefix of etcd for as long as the caller wants: first all entries, then every change, each exactly once.

After any disconnect it goes on from the revision it had, if etcd still says of that revision what it said before. Else
it reads all entries and yields a Snapshot again: the revision is compacted away, or etcd was restored from a backup and
has another history, which may be past that revision already. A member cut off from its leader ends the stream
(`hasleader`); a member that falls silent is left after SILENCE_S_MAX.

A stream starts at the revision that was seen last, and not at the next one. Events of the seen revision come again and
are skipped. There are two reasons. From 3.5.8 on etcd answers a progress request only once the start revision exists:
a stream that waits for the next change would seem silent. And a store that is compacted at exactly the next revision
may have lost the deletions of that revision, but would let a stream start there.

Belongs here: the watch. Does not: what the entries mean (cluster_view.py). Etcd's guarantees used: the events of one
revision come in one response, responses in order of revision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass

import grpc

from shoal_contract.errors import (
    OutcomeUnknown,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    ShoalError,
    Unavailable,
)
from shoal_coordination import limits
from shoal_coordination.client import EtcdClient
from shoal_coordination.connection import Endpoint
from shoal_coordination.entries import Entry, entry_from_wire, prefix_end
from shoal_coordination.etcd_errors import token_is_stale, translate
from shoal_coordination.wire import kv_pb2
from shoal_coordination.wire import rpc_pb2 as wire
from shoal_runtime.tasks import Tasks

_log = logging.getLogger(__name__)

OnLink = Callable[[bool], None]
"""Called with True when etcd is heard, with False when it is not; only at changes. Called from the event loop."""

_LINKED = ("hasleader", "true")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Holds every entry of the prefix at `revision`: it replaces all that was known."""

    revision: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """Holds the changes up to `revision`, in order. A deleted entry has only its key and the revision of its
    deletion."""

    revision: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Change:
    entry: Entry
    deleted: bool


class _Compacted(Exception):
    """Says that the revision asked for is gone, or that the store has another history: only a full read helps."""


async def watch_prefix(
    client: EtcdClient, prefix: bytes, on_link: OnLink = lambda linked: None
) -> AsyncGenerator[Snapshot | Changes, None]:
    """Yields a Snapshot, then Changes, without end. Close it (`contextlib.aclosing`) to end it.

    Raises PermissionDenied, Unauthenticated. Waits for the end of errors that may pass.
    """
    link = _Link(on_link)
    seen = 0
    """The revision up to which everything was yielded; 0: nothing yet."""
    known: dict[bytes, Entry] = {}
    """The entries as of that revision, by key."""
    while True:
        try:
            if not seen:
                found = await client.range_prefix(prefix)
                seen, known = found.revision, {entry.key: entry for entry in found.entries}
                link.heard()
                yield Snapshot(seen, found.entries)
            async with aclosing(_responses(client, prefix, seen)) as responses:
                async for response in responses:
                    if response.created and not await _same_history(client, prefix, seen, known):
                        raise _Compacted
                    link.heard()
                    changes = tuple(_change(event) for event in response.events if event.kv.mod_revision > seen)
                    if changes:
                        seen = changes[-1].entry.mod_revision
                        _fold(known, changes)
                        yield Changes(seen, changes)
        except _Compacted:
            _log.info(
                "etcd does not have the records of revision %d any more (compacted, or restored from a backup): all of"
                " %s are read anew",
                seen,
                prefix.decode(),
            )
            seen = 0
        except PermissionDenied as error:
            await link.refused(error)
        except (OutcomeUnknown, ResourceExhausted) as error:
            await link.lost(error)


async def _same_history(client: EtcdClient, prefix: bytes, seen: int, known: dict[bytes, Entry]) -> bool:
    """Returns whether etcd says of revision `seen` what it said when that was read. Must be asked once a stream has
    begun: an etcd with another history would have ended that. Raises ShoalError."""
    try:
        found = await client.range_prefix(prefix, seen)
    except OutOfRange:  # Compacted away, or this etcd never came so far.
        return False
    return {entry.key: entry for entry in found.entries} == known


def _fold(known: dict[bytes, Entry], changes: Iterable[Change]) -> None:
    for change in changes:
        if change.deleted:
            known.pop(change.entry.key, None)
        else:
            known[change.entry.key] = change.entry


class _Link:
    """Keeps whether etcd is heard, and how long to pause before the next attempt."""

    def __init__(self, on_link: OnLink) -> None:
        self._on_link = on_link
        self._linked: bool | None = None
        self._pause_s = limits.PAUSE_S_MIN
        self._refused = False

    def heard(self) -> None:
        self._pause_s = limits.PAUSE_S_MIN
        self._refused = False
        self._set(True)

    async def refused(self, error: PermissionDenied) -> None:
        """Raises the error if it is the second in a row: etcd refuses a watch in the same words for a stale login."""
        if self._refused:
            raise error
        self._refused = True
        await self.lost(error)

    async def lost(self, error: ShoalError) -> None:
        if self._linked is not False:
            _log.warning(
                "etcd does not answer: %s. The records that were read last stay in use; it is tried again", error
            )
        self._set(False)
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, limits.PAUSE_S_MAX)

    def _set(self, linked: bool) -> None:
        if self._linked is not linked:
            self._linked = linked
            self._on_link(linked)


async def _responses(client: EtcdClient, prefix: bytes, revision: int) -> AsyncGenerator[wire.WatchResponse, None]:
    """Yields the responses of one stream that starts at `revision`. Never ends by itself. Raises _Compacted,
    ShoalError."""
    async with client.use() as endpoint, Tasks("watch") as tasks:
        try:
            stream = endpoint.watch.Watch(metadata=(*await endpoint.metadata(), _LINKED))
        except grpc.aio.AioRpcError as error:
            raise translate(error, endpoint.address) from error
        try:
            create = wire.WatchCreateRequest(key=prefix, range_end=prefix_end(prefix), start_revision=revision)
            await stream.write(wire.WatchRequest(create_request=create))
            tasks.start("heartbeat", _beat(stream))
            while True:
                async with asyncio.timeout(limits.SILENCE_S_MAX):
                    response = await stream.read()
                if not isinstance(response, wire.WatchResponse):
                    raise Unavailable(f"etcd at {endpoint.address} ended a watch", subject=endpoint.address)
                _check(response, endpoint, revision)
                yield response
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError) as error:
            await client.leave(endpoint)
            raise _failure(error, endpoint) from error
        finally:
            stream.cancel()


async def _beat(stream: grpc.aio.StreamStreamCall[wire.WatchRequest, wire.WatchResponse]) -> None:
    """Asks for a sign of life until the stream ends. The reader sees why it ended."""
    try:
        while True:
            await asyncio.sleep(limits.HEARTBEAT_S)
            await stream.write(wire.WatchRequest(progress_request=wire.WatchProgressRequest()))
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass


def _check(response: wire.WatchResponse, endpoint: Endpoint, revision: int) -> None:
    """Raises the error that a response means, if it ends the watch."""
    if response.compact_revision or (response.created and response.header.revision < revision):
        raise _Compacted
    if not response.canceled:
        return
    reason = f"etcd at {endpoint.address} ended a watch: {response.cancel_reason}"
    if "permission denied" in response.cancel_reason:
        endpoint.forget_token()
        raise PermissionDenied(reason, subject=endpoint.address)
    raise Unavailable(reason, subject=endpoint.address)


def _failure(error: Exception, endpoint: Endpoint) -> ShoalError:
    if isinstance(error, grpc.aio.AioRpcError):
        if token_is_stale(error):
            endpoint.forget_token()
            return Unavailable(f"etcd at {endpoint.address} wants a new login", subject=endpoint.address)
        return translate(error, endpoint.address)
    if isinstance(error, TimeoutError):
        return Unavailable(f"etcd at {endpoint.address} was silent for {limits.SILENCE_S_MAX:g} s")
    return Unavailable(f"etcd at {endpoint.address} ended a watch", subject=endpoint.address)


def _change(event: kv_pb2.Event) -> Change:
    return Change(entry_from_wire(event.kv), event.type == kv_pb2.Event.DELETE)
