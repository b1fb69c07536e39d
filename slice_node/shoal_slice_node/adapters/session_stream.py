"""One session: a bidirectional stream of frames in, answers and deliveries out.

The reader stops when the broker has enough to do or the client takes no answers; the writer merges what is ready.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import grpc

from shoal_contract.errors import Malformed, ShoalError
from shoal_contract.limits import PRODUCER_BYTES
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters import requests
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.core.records import NO_PRODUCER, ChangeHead
from shoal_slice_node.limits import ANSWERS_PENDING_MAX, LARGE_ANSWER_WEIGHT, RESPONSE_BYTES_MAX

Context = grpc.aio.ServicerContext[Any, Any]


class SessionStream:
    """`serve` runs until the client leaves."""

    def __init__(self, broker: Broker, context: Context, opened: wire.Open) -> None:
        self._broker = broker
        self._context = context
        self._producer = opened.producer
        # With the weight of each.
        self._answers: deque[tuple[wire.Answer, int]] = deque()
        # Weight of the frames whose answers are not yet on their way.
        self._owed = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._session = broker.open_session(opened.window_bytes, self._wake.set)

    async def serve(self) -> None:
        writer = asyncio.create_task(self._write(), name=f"session {self._session.number}/write")
        reader = asyncio.create_task(self._read(), name=f"session {self._session.number}/read")
        try:
            done, _ = await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            reader.cancel()
            writer.cancel()
            self._broker.close_session(self._session)
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _read(self) -> None:
        context, commit = self._context, self._broker.commit
        while True:
            request = await context.read()
            if request is grpc.aio.EOF:
                return
            self._owed += _weight(request)
            if self._owed > ANSWERS_PENDING_MAX:
                self._room.clear()
            try:
                self._frame(request)
            except ShoalError as error:
                self._answer(wire.Answer(sequence=request.sequence, error=error.to_wire()))
            await self._room.wait()
            await commit.room()

    def _frame(self, request: wire.SessionRequest) -> None:
        kind = request.WhichOneof("frame")
        broker, session, sequence = self._broker, self._session, request.sequence
        if kind == "change":
            head = ChangeHead(self._producer, sequence, request.settled)
            requests.submit_change(broker, head, request.change, self._answer)
        elif kind == "acks":
            requests.take_acks(broker, session, list(request.acks.acks))
            broker.acks.then(lambda error: self._answer(_acked(sequence, error)))
        elif kind == "attach":
            requests.submit_read(
                broker, sequence, lambda: requests.attach(broker, session, request.attach), self._answer
            )
        elif kind == "detach":
            requests.submit_read(
                broker, sequence, lambda: requests.detach(broker, session, request.detach), self._answer
            )
        elif kind == "pull":
            requests.submit_read(
                broker, sequence, lambda: requests.pull(broker, session, request.pull, 0), self._answer_large
            )
        elif kind == "describe":
            requests.submit_read(
                broker, sequence, lambda: requests.describe(broker, request.describe), self._answer_large
            )
        else:
            raise Malformed(f"frame {sequence} is {kind or 'empty'}: unknown here, or Open a second time")

    def _answer(self, answer: wire.Answer) -> None:
        self._answers.append((answer, 1))
        self._wake.set()

    def _answer_large(self, answer: wire.Answer) -> None:
        self._answers.append((answer, LARGE_ANSWER_WEIGHT))
        self._wake.set()

    async def _write(self) -> None:
        session, context, broker = self._session, self._context, self._broker
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._answers or session.waiting:
                response, chunk_bytes = self._response()
                await context.write(response)
                if chunk_bytes:
                    broker.dispatcher.sent(session, chunk_bytes)
                    broker.after_event()

    def _response(self) -> tuple[wire.SessionResponse, int]:
        """What is ready, up to one response's size, and its chunk bytes."""
        response = wire.SessionResponse()
        room = RESPONSE_BYTES_MAX
        answers = self._answers
        while answers and (room == RESPONSE_BYTES_MAX or answers[0][0].ByteSize() < room):
            answer, weight = answers.popleft()
            self._owed -= weight
            room -= answer.ByteSize() + 8
            response.answers.append(answer)
        if self._owed <= ANSWERS_PENDING_MAX // 2:
            self._room.set()
        if not self._session.waiting or room < RESPONSE_BYTES_MAX // 2:
            return response, 0
        deliveries, chunk_bytes = self._session.take(room)
        response.deliveries.extend(deliveries)
        return response, chunk_bytes


def _weight(request: wire.SessionRequest) -> int:
    return LARGE_ANSWER_WEIGHT if request.WhichOneof("frame") in ("pull", "describe") else 1


def _acked(sequence: int, error: ShoalError | None) -> wire.Answer:
    return wire.Answer(sequence=sequence, error=None if error is None else error.to_wire())


def check_open(request: wire.SessionRequest) -> wire.Open:
    """Raises Malformed unless this is a proper first frame."""
    if request.WhichOneof("frame") != "open":
        raise Malformed("a session begins with an Open frame")
    if len(request.open.producer) != PRODUCER_BYTES or request.open.producer == NO_PRODUCER:
        found = len(request.open.producer)
        raise Malformed(f"producer is {found} bytes; it needs {PRODUCER_BYTES}, not all zero", subject="producer")
    return request.open
