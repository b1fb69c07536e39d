"""Keeps one gRPC channel at a time to one of several etcd endpoints, and leaves a failed endpoint for the next.

Belongs here: choosing, connecting, leaving, logging in. Does not: calls and their repetition (client.py, watch.py).
A channel that is left closes when its last user is gone: closing it earlier would cancel the tasks that wait on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle

import grpc

from shoal_contract.errors import Unavailable
from shoal_coordination import limits
from shoal_coordination.channels import CHANNEL_OPTIONS, Credentials, log_in_request
from shoal_coordination.etcd_errors import login_is_off
from shoal_coordination.options import EtcdOptions
from shoal_coordination.wire import rpc_pb2_grpc as services
from shoal_runtime.channels import open_channel


class Endpoint:
    """Holds a channel to one endpoint, its stubs and its login."""

    def __init__(self, address: str, options: EtcdOptions, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self._options = options
        self._channel = open_channel(address, CHANNEL_OPTIONS, credentials)
        self.kv = services.KVStub(self._channel)
        self.watch = services.WatchStub(self._channel)
        self.lease = services.LeaseStub(self._channel)
        self._auth = services.AuthStub(self._channel)
        self._token: str | None = None
        self.users = 0
        self.left = False

    async def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata that a call must carry. Logs in the first time. Raises AioRpcError."""
        if not self._options.user:
            return ()
        if self._token is None:
            self._token = await self._log_in()
        return (("token", self._token),) if self._token else ()

    def forget_token(self) -> None:
        """Makes the next call log in again."""
        self._token = None

    async def _log_in(self) -> str:
        request = log_in_request(self._options)
        try:
            return (await self._auth.Authenticate(request, timeout=limits.CALL_S)).token
        except grpc.aio.AioRpcError as error:
            if login_is_off(error):
                return ""
            raise

    @property
    def connected(self) -> bool:
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def connects(self) -> bool:
        """Returns whether the channel becomes ready within ENDPOINT_CONNECT_S; False at once if the connection is
        refused."""
        refused = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)
        try:
            async with asyncio.timeout(limits.ENDPOINT_CONNECT_S):
                while (state := self._channel.get_state(try_to_connect=True)) not in refused:
                    if state is grpc.ChannelConnectivity.READY:
                        return True
                    await self._channel.wait_for_state_change(state)
        except TimeoutError:
            pass
        return False

    async def close(self) -> None:
        await self._channel.close()


class Connection:
    """Keeps the current endpoint, which all calls of one client share."""

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._credentials = Credentials(options.tls)
        self._addresses = cycle(options.endpoints)
        self._current: Endpoint | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Endpoint]:
        """Gives a connected endpoint. Raises Unavailable if none connects within CONNECT_S."""
        endpoint = await self._ready()
        endpoint.users += 1
        try:
            yield endpoint
        finally:
            endpoint.users -= 1
            await self._close_if_unused(endpoint)

    async def leave(self, endpoint: Endpoint) -> None:
        """Makes later calls go to the next endpoint. Repeating it for the same endpoint changes nothing."""
        if self._current is endpoint:
            self._current = None
        endpoint.left = True
        await self._close_if_unused(endpoint)

    async def close(self) -> None:
        self._closed = True
        if self._current is not None:
            await self.leave(self._current)

    async def _close_if_unused(self, endpoint: Endpoint) -> None:
        if endpoint.left and not endpoint.users:
            await endpoint.close()

    async def _ready(self) -> Endpoint:
        async with self._connecting:
            try:
                async with asyncio.timeout(limits.CONNECT_S):
                    return await self._connect()
            except TimeoutError:
                tried = ", ".join(self._options.endpoints)
                raise Unavailable(f"no etcd endpoint answered in {limits.CONNECT_S:g} s: {tried}") from None

    async def _connect(self) -> Endpoint:
        pause_s = limits.PAUSE_S_MIN
        while True:
            for _ in self._options.endpoints:
                if self._closed:
                    raise Unavailable("this etcd client is closed")
                if self._current is not None and not self._current.connected:
                    # gRPC would connect this channel again with its first certificates; a new channel takes new ones.
                    await self.leave(self._current)
                if self._current is None:
                    self._current = Endpoint(next(self._addresses), self._options, self._credentials.now())
                if await self._current.connects():
                    return self._current
                await self.leave(self._current)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, limits.PAUSE_S_MAX)
