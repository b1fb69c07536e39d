"""A session to one slice, over any number of streams: writes frames, hands out answers, begins anew when lost.

    waiting --stream opens--> serving --stream lost, NotLeader, Unavailable, Fenced--> waiting (backoff) ...
       \\________________________ close ________________________/ ---> closed

Sent to the slice on each stream, in this order: Open, unanswered changes with their old numbers, what the owner says
belongs at the beginning (its attaches), other unanswered frames with new numbers, then what comes.
Not here: numbers and repeats (ledger.py), what frames mean (frames.py, gather.py, inbox_slice.py), which slice a key
belongs to (routing.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import grpc.aio
from google.protobuf.message import DecodeError

from shoal.backoff import Backoff
from shoal.channels import open_channel
from shoal.frames import Frame, Question, QuestionFrame
from shoal.gather import Rerouted
from shoal.ledger import Ledger
from shoal.limits import LINGER_FRAMES_MIN, LINGER_S, UNANSWERED_BYTES_MAX
from shoal.map_watch import MapWatch
from shoal.requests import Request
from shoal.waiting import Room, deadline_exceeded
from shoal_contract.errors import (
    Malformed,
    MapOrLeaderChanged,
    NotOwner,
    OutcomeUnknown,
    ResourceExhausted,
    ShoalError,
    Unavailable,
    from_wire,
)
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import PRODUCER_BYTES
from shoal_contract.tasks import Tasks
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

Stream = grpc.aio.StreamStreamCall[wire.SessionRequest, wire.SessionResponse]
OnDeliveries = Callable[[Sequence[wire.Delivery]], Awaitable[None]]


def _never(request: Request, error: ShoalError) -> None:
    request.fail(error)


async def _unexpected(deliveries: Sequence[wire.Delivery]) -> None:
    raise Malformed("the slice sent deliveries to a session that attached no queue")


class SliceSession:
    """Everything under way to one slice. `on_deliveries` may wait: then this stream is not read, which is backpressure.

    `first_frames` gives what each new stream must begin with, besides unanswered changes. `on_refused` is told when the
    slice refuses the stream itself, which repeating does not cure.
    """

    def __init__(
        self,
        slice_name: str,
        map_watch: MapWatch,
        *,
        reroute: Rerouted = _never,
        on_deliveries: OnDeliveries = _unexpected,
        first_frames: Callable[[], Sequence[Frame]] = tuple,
        on_refused: Callable[[ShoalError], None] = lambda error: None,
        window_bytes: int = 0,
    ) -> None:
        self.slice_name = slice_name
        self.room = Room(f"requests to slice {slice_name}", UNANSWERED_BYTES_MAX)
        self._map = map_watch
        self._on_deliveries = on_deliveries
        self._first_frames = first_frames
        self._on_refused = on_refused
        self._open = wire.Open(producer=os.urandom(PRODUCER_BYTES), window_bytes=window_bytes)
        self._ledger = Ledger(reroute)
        self._wake = asyncio.Event()
        self._answered = asyncio.Event()
        self._stream: Stream | None = None
        self._address = ""
        self._leader = ""
        """host:port that the last NotLeader named: tried once, before the map knows."""
        self._closed = False
        self._tasks = Tasks(f"session {slice_name}")
        self._unlisten = map_watch.listen(lambda _: self._address_may_have_changed())
        self._tasks.start("stream", self._run())

    def submit(self, request: Request) -> None:
        """Gathers a request. Its `cost_bytes` were taken from `room`."""
        if self._closed:
            self.room.give(request.cost_bytes)
            request.fail(self._closed_error())
            return
        self._ledger.add_request(request)
        self._wake.set()

    async def ask(self, question: Question, deadline: float) -> wire.Answer:
        """Sends a question and waits for its answer. Raises what the slice refuses it with, DeadlineExceeded."""
        return await (await self.asked(question, deadline)).future

    async def asked(self, question: Question, deadline: float) -> QuestionFrame:
        """Sends a question once there is room for it; its `future` will have the answer."""
        frame = QuestionFrame(question, deadline)
        await self.room.take(frame.cost_bytes, deadline)
        self.send(frame)
        return frame

    def send(self, frame: Frame) -> None:
        """Sends a frame that is no change, before changes that are not under way yet."""
        if self._closed:
            frame.failed(self._closed_error())
            return
        self._ledger.add_frame(frame)
        self._wake.set()

    def expire(self, now: float) -> None:
        """Fails who waits beyond their deadline; their frames stay numbered."""
        for frame in self._ledger.frames():
            if now >= frame.deadline:
                frame.expire(now, deadline_exceeded(f"request to slice {self.slice_name}"))

    async def flush(self) -> None:
        """Until everything submitted so far, and since, is answered."""
        while self._ledger:
            self._answered.clear()
            await self._answered.wait()

    async def close(self) -> None:
        """Ends the stream. What is unanswered fails with Unavailable: outcome unknown. `flush` first."""
        if self._closed:
            return
        self._closed = True
        self._unlisten()
        self.room.close(self._closed_error())
        await self._tasks.close()
        for frame in self._ledger.clear():
            frame.failed(self._closed_error())

    def _closed_error(self) -> Unavailable:
        what = f"session to slice {self.slice_name}"
        return Unavailable(f"{what} is closed; the outcome of what was under way is unknown", subject=what)

    def _address_may_have_changed(self) -> None:
        if self._stream is not None and self._map.current.address_of(self.slice_name) not in ("", self._address):
            self._stream.cancel()

    async def _run(self) -> None:
        backoff = Backoff()
        while True:
            self._address = self._leader or self._map.current.address_of(self.slice_name)
            self._leader = ""
            try:
                if self._address:
                    await self._serve(backoff)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
            except ShoalError as error:
                self._lost(error)
            await self._map.change(backoff.pause_s())

    def _lost(self, error: ShoalError) -> None:
        """A refusal that repeating cannot cure goes to everyone who waits; anything else is tried again."""
        if isinstance(error, MapOrLeaderChanged | OutcomeUnknown | ResourceExhausted):
            self._leader = error.leader
            self._map.suspect()
            return
        self._on_refused(error)
        for frame in self._ledger.clear():
            self._retire(frame, error)

    async def _serve(self, backoff: Backoff) -> None:
        """One stream, until it is lost. Raises ShoalError; CancelledError if it was ended from here."""
        channel = open_channel(self._address)
        writing: asyncio.Task[None] | None = None
        try:
            stub: SliceServiceAsyncStub = SliceServiceStub(channel)
            stream = self._stream = stub.Session()
            await stream.write(wire.SessionRequest(open=self._open))
            for ended in self._ledger.begin_stream(self._first_frames()):
                self._retire(ended, None)
            writing = self._tasks.start("write", self._write(stream))
            await self._read(stream, backoff)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        finally:
            if self._stream is not None:
                self._stream.cancel()
            self._stream = None
            if writing is not None:
                writing.cancel()
            await channel.close()

    async def _write(self, stream: Stream) -> None:
        try:
            while True:
                frame = self._ledger.take()
                if frame is None:
                    await self._wait_for_work()
                elif (request := self._ledger.numbered(frame)) is not None:
                    await stream.write(request)
                else:
                    self._retire(frame, None)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            stream.cancel()  # The reader learns why.

    async def _wait_for_work(self) -> None:
        self._wake.clear()
        await self._wake.wait()
        # Company is likely while answers are under way; otherwise one turn of the loop is enough.
        await asyncio.sleep(LINGER_S if self._ledger.in_flight > LINGER_FRAMES_MIN else 0)

    async def _read(self, stream: Stream, backoff: Backoff) -> None:
        while True:
            response = await stream.read()
            if not isinstance(response, wire.SessionResponse):
                raise Unavailable(f"slice {self.slice_name} ended the stream")
            backoff.reset()
            for answer in response.answers:
                self._answer(answer)
            if response.deliveries:
                await self._on_deliveries(response.deliveries)

    def _answer(self, answer: wire.Answer) -> None:
        frame = self._ledger.find(answer.sequence)
        if frame is None:
            return
        error = from_wire(answer.error) if answer.HasField("error") else None
        if isinstance(error, MapOrLeaderChanged | OutcomeUnknown) and not isinstance(error, NotOwner):
            raise error  # The frame stays, and goes out again with its number.
        self._ledger.settle(frame)
        try:
            if error is None:
                frame.answered(answer)
        except (DecodeError, ValueError) as problem:
            error = Malformed(f"answer {answer.sequence} of slice {self.slice_name} cannot be read: {problem}")
        self._retire(frame, error)
        self._wake.set()

    def _retire(self, frame: Frame, error: ShoalError | None) -> None:
        if error is not None:
            frame.failed(error)
        if frame.cost_bytes:
            self.room.give(frame.cost_bytes)
        self._answered.set()
