"""Calls etcd's v3 gRPC API, as a thin typed asyncio client: keys, transactions, single calls of leases.

Belongs here: unary calls with failover and login. Does not: watches (watch.py), keeping a lease (lease.py), what Shoal
stores (records.py and above). Reads are linearizable and repeated on other endpoints; a write is sent once.
Every method raises only ShoalError: Unavailable or DeadlineExceeded (for a write: outcome unknown), Unauthenticated,
PermissionDenied, ResourceExhausted, Conflict.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TypeVar

import grpc

from shoal_contract.errors import OutcomeUnknown
from shoal_coordination import limits
from shoal_coordination.connection import Connection, Endpoint
from shoal_coordination.entries import (
    Entry,
    Operation,
    Range,
    Transaction,
    entries_from_wire,
    prefix_end,
)
from shoal_coordination.etcd_errors import token_is_stale, translate
from shoal_coordination.options import EtcdOptions
from shoal_coordination.wire import rpc_pb2 as wire

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Metadata = tuple[tuple[str, str], ...]
Pick = Callable[[Endpoint], grpc.aio.UnaryUnaryMultiCallable[Request, Answer]]
Call = Callable[[Endpoint, Metadata], Awaitable[Answer]]


class EtcdClient:
    """Calls etcd: use as `async with EtcdClient(options) as client:`. Connects at the first call.

    End its watches and leases before it.
    """

    def __init__(self, options: EtcdOptions) -> None:
        self.options = options
        self._connection = Connection(options)

    async def get(self, key: bytes) -> Entry | None:
        found = (await self.range(key)).entries
        return found[0] if found else None

    async def range(self, key: bytes, range_end: bytes = b"", revision: int = 0) -> Range:
        """Reads one key, or every key in [key, range_end), as of `revision`; 0: now. Raises OutOfRange if the revision
        is compacted away, or is still to come."""
        request = wire.RangeRequest(key=key, range_end=range_end, revision=revision)
        answer = await self._read(lambda at: at.kv.Range, request)
        return Range(answer.header.revision, entries_from_wire(answer.kvs))

    async def range_prefix(self, prefix: bytes, revision: int = 0) -> Range:
        """Reads every key that begins with `prefix`, as `range` does."""
        return await self.range(prefix, prefix_end(prefix), revision)

    async def put(self, key: bytes, value: bytes, lease: int = 0) -> int:
        """Stores a value. Returns the revision of the change."""
        request = wire.PutRequest(key=key, value=value, lease=lease)
        answer = await self._write(lambda at: at.kv.Put, request)
        return answer.header.revision

    async def delete(self, key: bytes, range_end: bytes = b"") -> int:
        """Deletes one key, or every key in [key, range_end). Returns how many keys were deleted."""
        request = wire.DeleteRangeRequest(key=key, range_end=range_end)
        answer = await self._write(lambda at: at.kv.DeleteRange, request)
        return answer.deleted

    async def transact(
        self, compare: Sequence[wire.Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> Transaction:
        """Does `then` if every comparison holds, else `otherwise`: all at one revision, or nothing."""
        request = wire.TxnRequest(
            compare=compare,
            success=[operation.to_wire() for operation in then],
            failure=[operation.to_wire() for operation in otherwise],
        )
        answer = await self._write(lambda at: at.kv.Txn, request)
        reads = (each.response_range for each in answer.responses if each.HasField("response_range"))
        found = tuple(entries_from_wire(read.kvs) for read in reads)
        return Transaction(answer.succeeded, answer.header.revision, found)

    async def grant_lease(self, ttl_s: int) -> int:
        """Grants a lease, and returns its id. lease.py keeps it."""
        request = wire.LeaseGrantRequest(TTL=ttl_s)
        answer = await self._write(lambda at: at.lease.LeaseGrant, request)
        return answer.ID

    async def revoke_lease(self, lease: int) -> None:
        """Ends a lease and deletes its keys. Raises Conflict if it is gone already."""
        request = wire.LeaseRevokeRequest(ID=lease)
        await self._write(lambda at: at.lease.LeaseRevoke, request)

    async def lease_left_s(self, lease: int) -> int:
        """Returns the seconds that a lease lives unless renewed; 0: it is gone."""
        request = wire.LeaseTimeToLiveRequest(ID=lease)
        answer = await self._read(lambda at: at.lease.LeaseTimeToLive, request)
        return max(0, answer.TTL)

    def use(self) -> AbstractAsyncContextManager[Endpoint]:
        """Gives a connected endpoint, for a stream. Raises Unavailable."""
        return self._connection.use()

    async def leave(self, endpoint: Endpoint) -> None:
        """Makes later calls go to another endpoint, if there is one."""
        await self._connection.leave(endpoint)

    async def close(self) -> None:
        await self._connection.close()

    async def __aenter__(self) -> EtcdClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _write(self, pick: Pick[Request, Answer], request: Request) -> Answer:
        return await self._once(lambda at, metadata: pick(at)(request, timeout=limits.CALL_S, metadata=metadata))

    async def _read(self, pick: Pick[Request, Answer], request: Request) -> Answer:
        until_s = time.monotonic() + limits.CALL_S
        for _ in range(limits.READ_ATTEMPTS_MAX - 1):
            try:
                return await self._write(pick, request)
            except OutcomeUnknown:
                if time.monotonic() >= until_s:
                    raise
        return await self._write(pick, request)

    async def _once(self, call: Call[Answer]) -> Answer:
        """Sends a call at most once, not counting refusals of a stale token. Leaves an endpoint that fails it."""
        async with self._connection.use() as endpoint:
            try:
                return await _logged_in(endpoint, call)
            except grpc.aio.AioRpcError as error:
                failure = translate(error, endpoint.address)
                if isinstance(failure, OutcomeUnknown):
                    await self._connection.leave(endpoint)
                raise failure from error


async def _logged_in(endpoint: Endpoint, call: Call[Answer]) -> Answer:
    try:
        return await call(endpoint, await endpoint.metadata())
    except grpc.aio.AioRpcError as error:
        if not token_is_stale(error):
            raise
    endpoint.forget_token()
    return await call(endpoint, await endpoint.metadata())
