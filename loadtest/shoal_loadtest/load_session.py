"""One raw session to a slice: sends frames, passes answers to their waiters, and deliveries to a callback.

Deliberately thinner than the client library: a benchmark measures the slice. Not here: what frames say (frames.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import grpc

from shoal_contract.limits import FRAME_BYTES_MAX, PRODUCER_BYTES, REQUEST_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.frames import Frame, numbered
from shoal_loadtest.limits import ANSWER_S_MAX
from shoal_runtime.tasks import Tasks

Answered = Callable[[wire.Answer], None]
OnDeliveries = Callable[[Sequence[wire.Delivery]], None]
_METHOD = "/shoal.v1.SliceService/Session"
OPTIONS = (
    ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", REQUEST_BYTES_MAX),
    # A connection of its own, as a client process would have.
    ("grpc.use_local_subchannel_pool", 1),
)


class OwnConnection:
    """Holds a session's stream over a connection of its own, and the tasks that read it: they end together."""

    _call: Any

    def __init__(self, address: str, name: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._tasks = Tasks(name)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.close()
        self._call.cancel()
        await self._channel.close()


class LoadSession(OwnConnection):
    """Sends frames and takes their answers. Use as `async with LoadSession(address) as session:`. An error in an answer
    fails the whole session."""

    def __init__(self, address: str, on_deliveries: OnDeliveries | None = None, window_bytes: int = 0) -> None:
        super().__init__(address, "load session")
        self._on_deliveries = on_deliveries
        self._window_bytes = window_bytes
        self._waiting: dict[int, Answered] = {}
        """The frames without an answer, by sequence and in the order sent. Bounded by the frames that the bench keeps
        in flight."""
        self._sequence = 0
        self._failure: BaseException | None = None

    async def __aenter__(self) -> LoadSession:
        method: Any = self._channel.stream_stream(_METHOD, None, wire.SessionResponse.FromString)
        self._call = method(wait_for_ready=True)
        opened = wire.Open(producer=os.urandom(PRODUCER_BYTES), window_bytes=self._window_bytes)
        await self._call.write(wire.SessionRequest(open=opened).SerializeToString())
        self._reader = self._tasks.start("read", self._read(), awaited=True)
        return self

    async def send(self, frame: Frame, answered: Answered) -> None:
        """Sends a frame; returns when the transport has it. Raises BenchFailed if the session is over."""
        if self._failure is not None:
            raise BenchFailed(f"session ended: {self._failure}") from self._failure
        self._sequence += 1
        sequence = self._sequence
        settled = next(iter(self._waiting), sequence) - 1
        self._waiting[sequence] = answered
        try:
            await self._call.write(numbered(frame, sequence, settled))
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            raise BenchFailed(f"session ended: {self._failure or error}") from error

    async def ask(self, frame: Frame) -> wire.Answer:
        """Sends a frame and waits for its answer. Raises BenchFailed if no answer comes in time, or an error."""
        answer: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()
        await self.send(frame, answer.set_result)
        either: set[asyncio.Future[Any]] = {answer, self._reader}
        done, _ = await asyncio.wait(either, timeout=ANSWER_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        if answer not in done:
            raise BenchFailed(f"no answer within {ANSWER_S_MAX} s: {self._failure or 'the slice is silent'}")
        return answer.result()

    async def room(self, free: asyncio.Semaphore) -> None:
        """Waits for a place in `free` and takes it. Raises BenchFailed if the session ends first, or nothing is
        answered in time."""
        if not free.locked():
            await free.acquire()
            return
        taking = self._tasks.start("room", free.acquire(), awaited=True)
        try:
            await asyncio.wait({taking, self._reader}, timeout=ANSWER_S_MAX, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                raise BenchFailed(f"no answer within {ANSWER_S_MAX} s: {self._failure or 'the slice is silent'}")
        finally:
            taking.cancel()

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    @property
    def failure(self) -> BaseException | None:
        """Returns why the session ended, if it did."""
        return self._failure

    async def _read(self) -> None:
        try:
            while True:
                response = await self._call.read()
                if response is grpc.aio.EOF:
                    raise BenchFailed("the slice ended the session")
                for answer in response.answers:
                    if answer.HasField("error"):
                        raise BenchFailed(f"frame {answer.sequence} was refused: {answer.error.message}")
                    self._waiting.pop(answer.sequence)(answer)
                if self._on_deliveries is not None and response.deliveries:
                    self._on_deliveries(response.deliveries)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failure = error


def checked_outcome(answer: wire.Answer) -> wire.Outcome:
    """Returns the outcome of a change. Raises BenchFailed for any refusal, and for any item without an offset."""
    outcome = wire.Outcome.FromString(answer.outcome)
    for step in outcome.steps:
        if step.refusals:
            raise BenchFailed(f"{len(step.refusals)} requests refused: {step.refusals[0].error.message}")
        if 0 in step.offsets:
            raise BenchFailed("an item was answered without an offset")
    return outcome
