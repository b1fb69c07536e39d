"""Serves one session: a bidirectional stream that brings frames in, and answers and deliveries out.

The reader pauses while too much of its connection is pending, or the client does not take its answers. The writer
merges what is ready. A client that sends no more and still reads gets all answers that are still owed.
Not here: what frames mean (session_work).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc

from shoal_contract.errors import Malformed, ShoalError
from shoal_contract.limits import PARSED_AT_ONCE_BYTES_MAX, PRODUCER_BYTES
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.aborting import abort, send_headers, write
from shoal_runtime.tasks import Tasks
from shoal_slice_node.adapters.answers import Answers
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import DELIVERIES_PER_WRITE_BYTES
from shoal_slice_node.adapters.session_work import SessionWork
from shoal_slice_node.core.apply.records import NO_PRODUCER
from shoal_slice_node.core.checking.session_frames import parse_request
from shoal_slice_node.core.turns import Source

Context = grpc.aio.ServicerContext[Any, Any]


class SessionStream:
    """Serves one session. `serve` runs until the client leaves, or the slice ends the session."""

    def __init__(self, broker: Broker, context: Context, opened: wire.Open) -> None:
        self._broker = broker
        self._context = context
        self._reading_ended = False
        self._closed = False
        self._written_bytes = 0
        """The memory of deliveries that the transport was given and has not taken."""
        self._wake = asyncio.Event()
        self._answers = Answers(broker.answers, self._wake.set)
        self._ended = asyncio.Event()
        """Is set when the slice ends the session, whatever its writer waits for."""
        self._session = broker.open_session(
            opened.window_bytes, context.peer(), self._wake.set, self._ended.set, opened.producer
        )
        self._source = Source(context.peer(), self._session.number)
        self._work = SessionWork(broker, self._session, self._source, opened.producer, self._answers)

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
            self._close()  # First, since gRPC ends the call only once the client has read what is being written.
            await abort(self._context, error, self._broker.abort_s(self._written_bytes))
        finally:
            self._close()
            if self._written_bytes:
                self._broker.transport_freed(self._written_bytes)

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._answers.close()  # First: what waits for room finds that its answer is not wanted.
            self._broker.close_session(self._session, self._source, self._written_bytes)

    async def _read(self) -> None:
        """Reads frames until the client sends no more. Raises Malformed, TooLarge: a frame that cannot be parsed ends
        the session."""
        context, commit, connection = self._context, self._broker.commit_loop, self._context.peer()
        while True:
            data = await context.read()
            if data is grpc.aio.EOF:
                return
            self._broker.writers.heard(self._session)
            size_bytes = len(data)
            self._broker.watchman.unread.read(connection, size_bytes)
            large_bytes = size_bytes if size_bytes > PARSED_AT_ONCE_BYTES_MAX else 0
            steps = self._broker.steps
            frame, kept, began = await self._broker.kept_frames.parsed(data, connection, large_bytes, steps.done)
            try:
                large_bytes = self._work.take(frame, kept, large_bytes)
                steps.done(began)
                del frame, kept
            finally:
                if large_bytes:
                    commit.large_frames.give(large_bytes)
            del data
            await self._answers.room.wait()
            await commit.room(connection)

    async def _write(self) -> None:
        """Writes answers and deliveries until all are written and no more will come. Raises Fenced once the lease may
        be over."""
        session, context, broker = self._session, self._context, self._broker
        connection = context.peer()
        while True:
            if self._reading_ended and not (self._answers.owed or session.to_send):
                return
            await self._wake.wait()
            self._wake.clear()
            if session.paused:  # The transport has taken all that was written: the client reads.
                broker.dispatcher.reads(session)
                broker.start_due_work()
            while self._answers or session.to_send:
                size_bytes = min(session.under_way_bytes, DELIVERIES_PER_WRITE_BYTES) + self._answers.held_bytes()
                await broker.write_turns.turn(connection, size_bytes)
                if not (self._answers or session.to_send):
                    break  # It was taken back meanwhile.
                began = time.perf_counter()
                data, cost_bytes = self._work.response()
                broker.check_may_answer()
                broker.steps.done(began)
                if not data:
                    await asyncio.sleep(0)  # All that was looked at was for queues that are detached.
                    continue
                broker.writers.began(session, self._answers.held_bytes, self._answers.brief_bytes)
                self._written_bytes = cost_bytes
                await write(context, data)
                self._written_bytes = 0
                broker.watchman.unread.wrote(connection, len(data))
                del data
                broker.writers.ended(session)
                self._answers.written()
                if cost_bytes:
                    broker.dispatcher.sent(session, cost_bytes)
                    broker.start_due_work()


def check_open(data: bytes) -> wire.Open:
    """Returns the Open of a session's first frame. Raises Malformed if it is not a valid one."""
    request = parse_request(data)
    if request.WhichOneof("frame") != "open":
        raise Malformed("a session begins with an Open frame")
    if len(request.open.producer) != PRODUCER_BYTES or request.open.producer == NO_PRODUCER:
        found = len(request.open.producer)
        raise Malformed(f"producer is {found} bytes; it needs {PRODUCER_BYTES}, not all zero", subject="producer")
    return request.open
