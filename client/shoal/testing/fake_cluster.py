"""Is a cluster in memory: fake slices, a map, and redirectors that serve it, in the process and loop of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from shoal.broker import Broker
from shoal.telling import OnError, OnState
from shoal.testing.fake_slice import FakeSlice
from shoal.testing.limits import DEADLINE_S, FAKE_EPOCH, NAMES_TRIED_MAX, PARTITIONS
from shoal.testing.memory_transport import MemoryTransport
from shoal_contract import arguments
from shoal_contract.names import direct_key
from shoal_contract.partition_map import PartitionMap
from shoal_contract.wire import redirector_pb2 as wire


class FakeRedirector:
    """Serves the map of a fake cluster. `watches`: how often it was asked for it."""

    def __init__(self, cluster: FakeCluster, number: int) -> None:
        self._cluster = cluster
        self.address = f"redirector-{number}:1"
        """The address to connect to; no socket listens there."""
        self.watches = 0

    async def WatchMap(  # noqa: N802 - gRPC's name
        self, request: wire.WatchMapRequest, context: object
    ) -> AsyncIterator[wire.WatchMapResponse]:
        """Yields the map, and then each change."""
        self.watches += 1
        sent: PartitionMap | None = None
        while True:
            changed = self._cluster.changed
            current = self._cluster.map
            yield self._cluster.response(sent)
            sent = current
            await changed.wait()


class FakeCluster:
    """Is a whole cluster for tests, without sockets, processes or files: `FakeCluster().connect()`.

    It does what a real one does for: declare, drop, bind, unbind, publish, send, consume, ack, pull, peek, purge,
    describe, configure, farewell, nack, transactions and watches. It keeps everything for ever, in memory only:
    transient queues too. It has no `window_bytes`, and of the administration only figures and
    lists of queues. It has no clock: `Ago` is the earliest message, and `oldest_ms` is 0. Delayed publishes wait for
    `publish_due`, the end of a `ttl` for `expire`. `slices`: slice -> its fake, which a test may cut, silence, or let
    go away. `seen[slice]`: the map as that slice sees it; a test may let it lag behind.
    """

    def __init__(self, slices: Iterable[str] = ("s01", "s02", "s03")) -> None:
        names = list(slices)
        self.map = PartitionMap.even(names, PARTITIONS)
        """The map that redirectors serve."""
        self.changed = asyncio.Event()
        """Set, and replaced by a new one, when redirectors are to tell the map."""
        self.seen: dict[str, PartitionMap] = {}
        self.slices: dict[str, FakeSlice] = {}
        for name in names:
            self.add(name)
        self.redirectors = [self.new_redirector(number) for number in range(2)]
        """Serve the map. Connections of `connect` know all of them."""

    def connect(
        self, *, deadline_s: float = DEADLINE_S, on_state: OnState | None = None, on_error: OnError | None = None
    ) -> Broker:
        """Returns a connection, as `shoal.connect` does: `async with cluster.connect() as broker:`."""
        addresses = [redirector.address for redirector in self.redirectors]
        seconds = arguments.DEADLINE_S.check(deadline_s)
        transport = MemoryTransport(self.slices, self.redirectors)
        return Broker(addresses, seconds, transport, on_state=on_state, on_error=on_error)

    def add(self, name: str) -> FakeSlice:
        """Adds a slice that owns nothing yet; `move` gives it something."""
        self.seen[name] = self.map
        self.slices[name] = self.new_slice(
            name, lambda key: self.seen[name].owner_of(key), lambda: self.seen[name].version
        )
        self.slices[name].state.send_letter = self._send_letter
        return self.slices[name]

    def publish_due(self) -> None:
        """Publishes all that waits for its time (`not_before`), in the order of the times: the fake has no clock."""
        for slice_ in self.slices.values():
            slice_.state.publish_due()
            slice_.pump()

    def expire(self) -> None:
        """Ends the time of all that was published with a `ttl`: consumers that still had to get it are told of gaps."""
        for slice_ in self.slices.values():
            slice_.state.expire()
            slice_.pump()

    def _send_letter(self, key: bytes, chunk: bytes) -> None:
        owner = self.slices[self.map.owner_of(key)]
        owner.state.take_letter(key, chunk)
        owner.pump()

    def new_slice(self, name: str, owner_of: Callable[[bytes], str], version: Callable[[], int]) -> FakeSlice:
        """Makes a slice."""
        return FakeSlice(name, owner_of, version)

    def new_redirector(self, number: int) -> FakeRedirector:
        """Makes a redirector."""
        return FakeRedirector(self, number)

    def move(self, changes: Mapping[int, str], *, tell: bool = True) -> None:
        """Gives partitions to other slices: partition -> slice. Slices know the new map at once; redirectors tell it if
        `tell`, else at the next `announce`."""
        self.map = self.map.moved(changes)
        self.seen = dict.fromkeys(self.slices, self.map)
        if tell:
            self.announce()

    def announce(self) -> None:
        """Lets redirectors tell the map as it is now."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def response(self, sent: PartitionMap | None) -> wire.WatchMapResponse:
        """Returns what a redirector sends next. `sent`: the map that it sent before."""
        response = wire.WatchMapResponse(map_version=self.map.version)
        for name in self.map.slices:
            slice_ = self.slices[name]
            response.slices.add(
                slice=name, address=slice_.address, epoch=FAKE_EPOCH, admin_address=slice_.admin_address
            )
        if sent is None:
            response.partitions = self.map.partitions
            response.owners.extend(self.map.owners)
            return response
        for partition, owner in enumerate(self.map.owners):
            if self.map.slices[owner] != sent.slices[sent.owners[partition]]:
                response.moved.append(partition)
                response.owners.append(owner)
        return response

    def owner_of(self, key: str) -> FakeSlice:
        """Returns the slice that owns a key."""
        return self.slices[self.map.owner_of(key.encode())]

    def home_of(self, queue: str) -> FakeSlice:
        """Returns the home of a queue: the slice that knows whether it exists."""
        return self.slices[self.map.owner_of(direct_key(queue.encode()))]

    def queue_with_home(self, name: str, prefix: str = "queue") -> str:
        """Returns a name of a queue whose home is this slice."""
        return next(q for q in (f"{prefix}-{i}" for i in range(NAMES_TRIED_MAX)) if self.home_of(q).name == name)

    def key_of(self, name: str, prefix: str = "key") -> str:
        """Returns a key that this slice owns."""
        return next(k for k in (f"{prefix}-{i}" for i in range(NAMES_TRIED_MAX)) if self.owner_of(k).name == name)
