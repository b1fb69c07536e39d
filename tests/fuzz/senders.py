"""Provides a client that sends mutated requests over bare gRPC: bytes in, bytes out. It abandons some of its calls.

It raises AssertionError for answers that no client may get: no answer at all, UNKNOWN, an answer that names a defect,
or a session that ends well but has not answered each frame once.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from random import Random
from typing import Any

import grpc

from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import common_pb2 as errors
from shoal_contract.wire import slice_pb2 as wire
from tests.fuzz import proper
from tests.fuzz.mutations import mutate

CALLS = 12
FRAMES_MAX = 20
ANSWERED_S = 20
ABANDONED_SHARE = 0.1
SHOWN_BYTES = 120

EXPECTED = {
    errors.ERROR_CODE_RESOURCE_EXHAUSTED,
    errors.ERROR_CODE_INVALID_NAME,
    errors.ERROR_CODE_TOO_LARGE,
    errors.ERROR_CODE_UNROUTABLE,
    errors.ERROR_CODE_NO_SUCH_QUEUE,
    errors.ERROR_CODE_CONFLICT,
    errors.ERROR_CODE_OUT_OF_RANGE,
    errors.ERROR_CODE_MALFORMED,
}
"""The errors with which bad input may be answered."""

WRITTEN_TOO_LATE = "Internal error from Core"
"""The text of gRPC's client where it writes to a stream that has ended: the server's status is then not known."""

Call = grpc.aio.StreamStreamCall[bytes, bytes]


class Sender:
    """Sends requests. `sent` gets a line for each request."""

    def __init__(self, random: Random, shared: grpc.aio.Channel, address: str, sent: list[str]) -> None:
        self._random = random
        self._shared = shared
        self._address = address
        self._sent = deque[str](maxlen=FRAMES_MAX)
        self._all_sent = sent

    async def send(self) -> None:
        """Makes some calls one after the other, on its own connection or on a shared one."""
        if self._random.random() < 0.5:
            await self._calls(self._shared)
            return
        async with grpc.aio.insecure_channel(self._address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            await self._calls(channel)

    async def _calls(self, channel: grpc.aio.Channel) -> None:
        for _ in range(CALLS):
            kind = self._random.random()
            if kind < 0.35:
                await self._session(channel)
            elif kind < 0.4:
                await self._import(channel)
            else:
                await self._unary(channel)

    def _mutated(self, method: str, data: bytes, share: float = 0.8) -> bytes:
        if self._random.random() < share:
            data = mutate(data, self._random)
        shown = data[:SHOWN_BYTES].hex() + ("..." if len(data) > SHOWN_BYTES else "")
        said = f"{method.rpartition('/')[2]} {len(data)} {shown}"
        self._sent.append(said)
        self._all_sent.append(said)
        return data

    async def _unary(self, channel: grpc.aio.Channel) -> None:
        method = self._random.choice(list(proper.UNARY))
        data = self._mutated(method, proper.UNARY[method](self._random).SerializeToString())
        verb: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        call = verb(data)
        if self._abandons():
            await self._abandon(call)
            return
        try:
            async with asyncio.timeout(ANSWERED_S):
                await call
        except TimeoutError:
            raise AssertionError(f"this is not answered: {self._sent[-1]}") from None
        except grpc.aio.AioRpcError as error:
            check_status(error)

    async def _import(self, channel: grpc.aio.Channel) -> None:
        run = self._random.choice((*proper.PRODUCERS, self._random.randbytes(16), self._random.randbytes(16)))
        chunks = []
        for number in range(1, self._random.randint(2, 6)):
            change = proper.imports(self._random)
            if self._random.random() < 0.5:
                change = mutate(change, self._random)
            chunks.append(self._mutated(proper.IMPORT, proper.import_chunk(run, number, change), 0.2))
        await self._stream(channel.stream_stream(proper.IMPORT)(), chunks)

    async def _session(self, channel: grpc.aio.Channel) -> None:
        frames = [self._mutated(proper.SESSION, proper.opened(self._random), 0.1)]
        for sequence in range(1, self._random.randint(2, FRAMES_MAX)):
            frames.append(self._mutated(proper.SESSION, proper.frame(self._random, sequence), 0.6))
        responses = await self._stream(channel.stream_stream(proper.SESSION)(), frames)
        if responses is None:
            return
        answers = [answer for data in responses for answer in wire.SessionResponse.FromString(data).answers]
        for answer in answers:
            assert not answer.HasField("error") or answer.error.code in EXPECTED, answer
        asked = Counter(wire.SessionRequest.FromString(frame).sequence for frame in frames[1:])
        found = Counter(answer.sequence for answer in answers)
        assert found == asked, f"answers are missing or too many: {asked - found}, {found - asked}"

    async def _stream(self, call: Call, requests: list[bytes]) -> list[bytes] | None:
        """Returns all responses of a stream that ended well; None if the stream was refused or abandoned."""
        try:
            return await self._responses(call, requests)
        finally:
            call.cancel()  # Otherwise unread responses stay in the node's transport while the connection lasts.

    async def _responses(self, call: Call, requests: list[bytes]) -> list[bytes] | None:
        abandoned = self._abandons()
        responses: list[bytes] = []
        try:
            async with asyncio.timeout(ANSWERED_S):
                for request in requests:
                    await call.write(request)
                if abandoned:
                    await self._abandon(call)
                    return None
                await call.done_writing()
                async for response in call:
                    responses.append(response)
                return responses
        except TimeoutError:
            sent = "\n".join([*self._sent][-len(requests) :])
            raise AssertionError(f"a stream is not answered, {len(responses)} came:\n{sent}") from None
        except asyncio.InvalidStateError:
            # The stream ended while this side wrote; its status tells how.
            pass
        except grpc.aio.AioRpcError as error:
            check_status(error)
            return None
        await self._check_ended(call)
        return None

    async def _check_ended(self, call: Call) -> None:
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            check_status(error)

    def _abandons(self) -> bool:
        return self._random.random() < ABANDONED_SHARE

    async def _abandon(self, call: Any) -> None:
        """Cancels a call at once, or when it may be under way."""
        for _ in range(self._random.choice((0, 1, 5, 50))):
            await asyncio.sleep(0)
        call.cancel()


def check_status(error: grpc.aio.AioRpcError) -> None:
    """Raises AssertionError unless a client that sends nonsense may get this error."""
    code = error.code()
    if code is grpc.StatusCode.INTERNAL and error.details() == WRITTEN_TOO_LATE:
        return
    assert code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE), error
    found = from_rpc_error(error)
    assert found.code in EXPECTED, error
