"""A raw session that takes errors as answers, and need not read: for clients that go to every limit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence

from shoal_contract.limits import FRAME_OPERATIONS_MAX, PRODUCER_BYTES
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.load_session import OwnConnection


class GreedySession(OwnConnection):
    """Opens a session of a greedy client. Use as `async with GreedySession(address) as session:`. `reads` False: it
    never reads."""

    def __init__(
        self,
        address: str,
        window_bytes: int = 0,
        delivered: Callable[[wire.Delivery], None] = lambda _: None,
        reads: bool = True,
    ) -> None:
        super().__init__(address, "greedy session")
        self._window_bytes = window_bytes
        self._delivered = delivered
        self._reads = reads
        self._waiting: dict[int, asyncio.Future[wire.Answer]] = {}
        self._sequence = 0
        self._writing = asyncio.Lock()  # gRPC takes one write at a time.

    async def __aenter__(self) -> GreedySession:
        self._call = SliceServiceStub(self._channel).Session(wait_for_ready=True)
        await self._call.write(
            wire.SessionRequest(open=wire.Open(producer=os.urandom(PRODUCER_BYTES), window_bytes=self._window_bytes))
        )
        if self._reads:
            self._tasks.start("read", self._read(), awaited=True)
        return self

    async def send(self, request: wire.SessionRequest) -> asyncio.Future[wire.Answer]:
        """Sends a request. Returns a future of the answer. Raises grpc.RpcError when the slice has ended the
        session."""
        answer: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()
        async with self._writing:
            self._sequence += 1
            request.sequence = self._sequence
            request.settled = next(iter(self._waiting), self._sequence) - 1
            if self._reads:
                self._waiting[self._sequence] = answer
            await self._call.write(request)
        return answer

    async def ask(self, request: wire.SessionRequest) -> wire.Answer:
        """Sends a request and returns the answer. Raises grpc.RpcError."""
        return await (await self.send(request))

    async def change(self, *steps: wire.Step) -> None:
        """Sends a change. Raises BenchFailed if it is refused."""
        answer = await self.ask(wire.SessionRequest(change=wire.Change(steps=steps).SerializeToString()))
        if answer.HasField("error"):
            raise BenchFailed(f"the slice refused what a greedy client needs: {answer.error.message}")

    async def bind_each(self, queues: Sequence[bytes], keys: Sequence[bytes]) -> None:
        """Declares queues, and binds each to the key at its place."""
        size = FRAME_OPERATIONS_MAX // 2
        for first in range(0, len(queues), size):
            names = queues[first : first + size]
            binds = wire.Binds(queues=names, key_counts=[1] * len(names), keys=keys[first : first + size])
            await self.change(wire.Step(declares=wire.Declares(queues=names)), wire.Step(binds=binds))

    async def attach(self, queues: Sequence[bytes], first_handle: int, windows: tuple[int, int]) -> None:
        """Attaches queues in frames of the largest size, all under way at once. `windows`: messages, bytes."""
        size = FRAME_OPERATIONS_MAX
        answers = []
        for first in range(0, len(queues), size):
            names = queues[first : first + size]
            handles = range(first_handle + first, first_handle + first + len(names))
            attach = wire.Attach(queues=names, handles=handles, window_messages=windows[0], window_bytes=windows[1])
            answers.append(await self.send(wire.SessionRequest(attach=attach)))
        if self._reads:
            await asyncio.gather(*answers)

    async def _read(self) -> None:
        async for response in self._call:
            for answer in response.answers:
                self._waiting.pop(answer.sequence).set_result(answer)
            for delivery in response.deliveries:
                self._delivered(delivery)


def names(kind: str, count: int) -> list[bytes]:
    return [f"{kind}-{number}".encode() for number in range(count)]


def keys_in_turn(kind: str, keys: int, count: int) -> list[bytes]:
    return [f"{kind}-{number % keys}".encode() for number in range(count)]


def publish_step(key: bytes, chunk: bytes) -> wire.Step:
    return wire.Step(publishes=wire.Publishes(keys=[key], chunks=[chunk]))


def unbind_step(queue: bytes, keys: Iterable[bytes]) -> wire.Step:
    listed = list(keys)
    return wire.Step(unbinds=wire.Unbinds(queues=[queue], key_counts=[len(listed)], keys=listed))


def bind_step(queue: bytes, keys: Iterable[bytes]) -> wire.Step:
    listed = list(keys)
    return wire.Step(binds=wire.Binds(queues=[queue], key_counts=[len(listed)], keys=listed))
