"""One session: a bidirectional stream of frames in, answers and deliveries out.

The reader stops when the broker has enough to do of this session or the client takes no answers; the writer merges what
is ready. A client that sends no more and still reads gets every answer that it is owed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc

from shoal_contract.errors import Malformed, ShoalError
from shoal_contract.grpc_errors import abort, send_headers
from shoal_contract.limits import PARSED_AT_ONCE_BYTES_MAX, PRODUCER_BYTES, PULL_LEASE_MS_MAX
from shoal_contract.tasks import Tasks
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters import requests
from shoal_slice_node.adapters.answer_room import Reservation
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import (
    ANSWERS_PENDING_MAX,
    BYTES_PER_WEIGHT,
    DELIVERIES_PER_WRITE_BYTES,
    LARGE_ANSWER_WEIGHT,
    RESETS_PER_RESPONSE_MAX,
    RESPONSE_BYTES_MAX,
)
from shoal_slice_node.core.records import NO_PRODUCER, ChangeHead
from shoal_slice_node.core.session_frames import parse_request

Context = grpc.aio.ServicerContext[Any, Any]


class SessionStream:
    """`serve` runs until the client leaves, or the slice ends the session."""

    def __init__(self, broker: Broker, context: Context, opened: wire.Open) -> None:
        self._broker = broker
        self._context = context
        self._producer = opened.producer
        self._answers: deque[tuple[wire.Answer, int, Reservation | None]] = deque()
        """Each with its weight, and its reservation if it is a large one."""
        self._reservations: set[Reservation] = set()
        """Of large answers that are not written yet."""
        self._written: list[Reservation] = []
        """Of large answers in the response that is being written."""
        self._owed = 0
        """Weight of the frames whose answers are not yet on their way."""
        self._reading_ended = False
        self._closed = False
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ended = asyncio.Event()
        """The slice ends the session, whatever its writer waits for."""
        self._session = broker.open_session(opened.window_bytes, self._wake.set, self._ended.set)

    async def serve(self) -> None:
        try:
            await send_headers(self._context)
            async with Tasks(f"session {self._session.number}") as tasks:
                writer = tasks.start("write", self._write(), awaited=True)
                reader = tasks.start("read", self._read(), awaited=True)
                ended = tasks.start("ended", self._ended.wait(), awaited=True)
                await asyncio.wait((reader, writer, ended), return_when=asyncio.FIRST_COMPLETED)
                if reader.done() and not reader.exception():
                    self._reading_ended = True
                    self._wake.set()
                    await asyncio.wait((writer, ended), return_when=asyncio.FIRST_COMPLETED)
                if self._session.ended_by is not None:
                    raise self._session.ended_by
                for task in (reader, writer):
                    if task.done():
                        task.result()
        except ShoalError as error:
            self._close()  # Before: gRPC ends the call only once the client has read what is being written.
            await abort(self._context, error)
        finally:
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._broker.close_session(self._session)
            for reservation in self._reservations:
                reservation.release()

    async def _read(self) -> None:
        """Raises Malformed, TooLarge: a frame that cannot be told from another ends the session."""
        context, commit, source = self._context, self._broker.commit, self._session.number
        while True:
            data = await context.read()
            if data is grpc.aio.EOF:
                return
            self._broker.writers.heard(self._session)
            size_bytes = len(data)
            if size_bytes > PARSED_AT_ONCE_BYTES_MAX:
                await commit.room_for(size_bytes)
            began = time.perf_counter()
            request = parse_request(data)
            del data
            weight = _weight(request, size_bytes)
            self._owed += weight
            if self._owed > ANSWERS_PENDING_MAX:
                self._room.clear()
            try:
                self._frame(request, weight)
            except ShoalError as error:
                self._answer(self._broker.refusal(request.sequence, error), weight)
            self._broker.steps.done(began)
            await self._room.wait()
            await commit.room(source)

    def _frame(self, request: wire.SessionRequest, weight: int) -> None:
        kind = request.WhichOneof("frame")
        broker, session, sequence = self._broker, self._session, request.sequence
        source = session.number

        def answer(answer: wire.Answer) -> None:
            self._answer(answer, weight)

        if kind == "change":
            head = ChangeHead(self._producer, sequence, request.settled)
            requests.submit_change(broker, source, head, request.change, answer)
        elif kind == "acks":
            self._acks(sequence, list(request.acks.acks), answer)
        elif kind == "attach":
            work = requests.attach(broker, session, request.attach)
            requests.submit_work(broker, source, sequence, work, answer)
        elif kind == "detach":
            work = requests.detach(broker, session, request.detach)
            requests.submit_work(broker, source, sequence, work, answer)
        elif kind == "pull":
            work = requests.pull(broker, session, request.pull, 0, PULL_LEASE_MS_MAX)
            requests.submit_work(broker, source, sequence, work, *self._large(weight))
        elif kind == "describe":
            work = requests.describe(broker, request.describe)
            requests.submit_work(broker, source, sequence, work, *self._large(weight))
        else:
            raise Malformed(f"frame {sequence} is {kind or 'empty'}: unknown here, or Open a second time")

    def _acks(self, sequence: int, acks: list[wire.Ack], answer: Callable[[wire.Answer], None]) -> None:
        broker = self._broker

        def flushed(error: ShoalError | None) -> None:
            answer(wire.Answer(sequence=sequence) if error is None else broker.refusal(sequence, error))

        def taken(error: ShoalError | None) -> None:
            if error is None:
                broker.acks.then(flushed)
                broker.after_event()
            else:
                flushed(error)

        requests.take_acks(broker, self._session, acks, taken, everyone=False)

    def _large(self, weight: int) -> tuple[Callable[[wire.Answer], None], Callable[[Reservation], None]]:
        """What takes one large answer, and what takes its reservation: released when that is written, or the session
        ends. Not by the frame's sequence, which a client may use twice."""
        reserved: Reservation | None = None

        def keep(reservation: Reservation) -> None:
            nonlocal reserved
            if self._closed:
                reservation.release()
            else:
                reserved = reservation
                self._reservations.add(reservation)

        def answer(answer: wire.Answer) -> None:
            if reserved is not None:
                reserved.settle(answer.ByteSize())
            self._answers.append((answer, weight, reserved))
            self._wake.set()

        return answer, keep

    def _answer(self, answer: wire.Answer, weight: int) -> None:
        """`weight`: as its frame was counted."""
        self._answers.append((answer, weight, None))
        self._wake.set()

    async def _write(self) -> None:
        """Raises what the slice ends the session with."""
        session, context, broker = self._session, self._context, self._broker
        while True:
            if self._reading_ended and not (self._owed or session.to_send):
                return
            await self._wake.wait()
            self._wake.clear()
            while self._answers or session.to_send:
                began = time.perf_counter()
                response, cost_bytes = self._response()
                broker.check_may_answer()
                data = response.SerializeToString()
                del response
                broker.steps.done(began)
                broker.writers.began(session, self._reservations)
                await context.write(data)
                broker.writers.ended(session)
                while self._written:
                    written = self._written.pop()
                    self._reservations.discard(written)
                    written.release()
                if cost_bytes:
                    broker.dispatcher.sent(session, cost_bytes)
                    broker.after_event()

    def _response(self) -> tuple[wire.SessionResponse, int]:
        """What is ready, up to one response's size; and the memory of its deliveries."""
        response = wire.SessionResponse()
        room = RESPONSE_BYTES_MAX
        answers, session = self._answers, self._session
        while answers and (room == RESPONSE_BYTES_MAX or answers[0][0].ByteSize() + 8 <= room):
            answer, weight, reservation = answers.popleft()
            self._owed -= weight
            if reservation is not None:
                self._written.append(reservation)
            room -= answer.ByteSize() + 8
            response.answers.append(answer)
        if self._owed <= ANSWERS_PENDING_MAX // 2:
            self._room.set()
        response.resets.extend(session.resets[:RESETS_PER_RESPONSE_MAX])
        del session.resets[:RESETS_PER_RESPONSE_MAX]
        if session.resets or not session.waiting or room < RESPONSE_BYTES_MAX // 2:
            return response, 0
        deliveries, cost_bytes = self._broker.dispatcher.take(session, min(room, DELIVERIES_PER_WRITE_BYTES))
        response.deliveries.extend(deliveries)
        return response, cost_bytes


def _weight(request: wire.SessionRequest, size_bytes: int) -> int:
    """What is pending of a change is counted in bytes elsewhere; other frames are kept until they are answered."""
    kind = request.WhichOneof("frame")
    if kind == "change":
        return 1
    return (LARGE_ANSWER_WEIGHT if kind in ("pull", "describe") else 1) + size_bytes // BYTES_PER_WEIGHT


def check_open(data: bytes) -> wire.Open:
    """Raises Malformed unless this is a proper first frame."""
    request = parse_request(data)
    if request.WhichOneof("frame") != "open":
        raise Malformed("a session begins with an Open frame")
    if len(request.open.producer) != PRODUCER_BYTES or request.open.producer == NO_PRODUCER:
        found = len(request.open.producer)
        raise Malformed(f"producer is {found} bytes; it needs {PRODUCER_BYTES}, not all zero", subject="producer")
    return request.open
