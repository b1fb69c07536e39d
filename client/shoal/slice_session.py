"""Keeps a session to one slice, over any number of streams: writes frames, hands out answers, begins anew when lost.

    waiting --stream opens--> serving --stream lost, NotLeader, Unavailable, Fenced--> waiting (backoff) ...
       \\________________________ close ________________________/ ---> closed

On each stream the slice is sent, in this order: Open, unanswered changes with their old numbers, the consumer's first
frames (its attaches), other unanswered frames with new numbers, then new frames.

Any other failure here (a defect, a foreign error) fails all waiting calls with an error that says so, and is logged.
Then the stream begins anew, so the next call finds a session that works. Deadlines do not depend on any of this
(deadlines.py). Not here: numbers and repeats (core/ledger.py), what frames mean (core/frames.py, core/gather.py),
which slice a key belongs to (routing.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from random import random

from shoal.consumer import Consumer
from shoal.core.backoff import Backoff
from shoal.core.frames import Frame, ProbeFrame, QuestionFrame
from shoal.core.gather import ChangeFrame, Rerouted
from shoal.core.ledger import Ledger
from shoal.core.requests import Request
from shoal.deadlines import Deadlines
from shoal.limits import LINGER_FRAMES_MIN, LINGER_S, SESSION_END_S, SILENT_S, UNANSWERED_BYTES_MAX
from shoal.map_watch import MapWatch
from shoal.telling import Telling
from shoal.transport.base import SessionStream, Transport
from shoal.waiting import Room
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
from shoal_contract.limits import PRODUCER_BYTES
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.tasks import Tasks

_log = logging.getLogger("shoal")


def _never(request: Request, error: ShoalError) -> None:
    request.fail(error)


class SliceSession:
    """Carries everything under way to one slice. `what`: names its use for the log."""

    def __init__(
        self,
        slice_name: str,
        map_watch: MapWatch,
        deadlines: Deadlines,
        transport: Transport,
        telling: Telling,
        *,
        what: str = "requests",
        reroute: Rerouted = _never,
        consumer: Consumer | None = None,
        window_bytes: int = 0,
    ) -> None:
        self.slice_name = slice_name
        self.room = Room(f"requests to slice {slice_name}", UNANSWERED_BYTES_MAX)
        self.stream_number = 0
        """The number of the stream that is open, or was open last."""
        self.away = ""
        """Why the last stream was lost; "" once the slice has answered on another one."""
        self._map = map_watch
        self._deadlines = deadlines
        self._transport = transport
        self._telling = telling
        self._up = False
        """True from the first answer on a stream until the stream is lost."""
        self._what = f"{what} to slice {slice_name}"
        self._consumer = consumer or Consumer()
        self._open = wire.Open(producer=os.urandom(PRODUCER_BYTES), window_bytes=window_bytes)
        self._ledger = Ledger(reroute)
        self._backoff = Backoff(random)
        self._wake = asyncio.Event()
        self._answered = asyncio.Event()
        self._stream: SessionStream | None = None
        self._broken: BaseException | None = None
        """Why the writer ended the stream."""
        self._address = ""
        self._leader = ""
        """host:port that the last NotLeader named. It is tried once, before the map knows it."""
        self._quiet_since_s = 0.0
        """Event loop time since when something waits for an answer and nothing comes; 0: nothing waits, or the owner
        does not read."""
        self._silence_told = False
        self._delivering = False
        self._closed = False
        self._stream_ends: list[Callable[[], None]] = []
        self._tasks = Tasks(f"session {slice_name}")
        self._unlisten = map_watch.listen(lambda _: self._address_may_have_changed())
        self._tasks.start("stream", self._run())
        deadlines.each_second(self._tell_silence)

    @property
    def streaming(self) -> bool:
        """Returns whether a stream is open, as far as known."""
        return self._stream is not None

    def on_stream_end(self, callback: Callable[[], None]) -> None:
        """Has `callback` called whenever a stream is lost. Frames that end with it are gone then."""
        self._stream_ends.append(callback)

    def submit(self, request: Request) -> None:
        """Gathers a request. Its `cost_bytes` were taken from `room`. Raises an error if it cannot be written."""
        if self._closed:
            self.room.give(request.cost_bytes)
            request.fail(self._closed_error())
            return
        try:
            began = self._ledger.add_request(request)
        except BaseException:
            self.room.give(request.cost_bytes)
            raise
        if began is not None:
            self._watch(began)
        self._wake.set()

    def submit_change(self, frame: ChangeFrame) -> None:
        """Sends a whole change behind the requests gathered so far. Its `cost_bytes` were taken from `room`."""
        if self._closed:
            self._retire(frame, self._closed_error())
            return
        self._ledger.add_change(frame)
        self._watch(frame)
        self._wake.set()

    async def asked(self, frame: QuestionFrame) -> None:
        """Sends a question once there is room for it; its waiter will have the answer."""
        await self.room.take(frame.cost_bytes, frame.deadline)
        self.send(frame)

    def send(self, frame: Frame) -> None:
        """Sends a frame that is not a change, before changes that are not under way yet."""
        if self._closed:
            self._retire(frame, self._closed_error())
            return
        self._ledger.add_frame(frame)
        self._watch(frame)
        self._wake.set()

    def caller_left(self, frame: Frame) -> None:
        """Records that nothing waits for the answer to a frame that was sent: its pull goes on without, or ended."""
        self._ledger.caller_left(frame)
        self._answered.set()

    @property
    def awaited(self) -> bool:
        """Returns whether a flush waits for an answer."""
        return self._ledger.awaited

    async def flush(self, also_left: bool = False) -> None:
        """Waits until all that was submitted is answered. `also_left`: what callers have left, too, to give it back."""
        while self._ledger if also_left else self.awaited:
            self._answered.clear()
            await self._answered.wait()

    def close_soon(self) -> None:
        """Ends the session without waiting. Unanswered calls fail with Unavailable: outcome unknown."""
        if self._closed:
            return
        self._closed = True
        self._telling.gone(self.slice_name, self)
        self._deadlines.no_more(self._tell_silence)
        self._unlisten()
        self.room.close(self._closed_error())
        self._tasks.cancel()
        self._give_up(self._closed_error("the outcome of what was under way is unknown"))

    async def close(self) -> None:
        """Does as `close_soon`, and waits until the stream has ended, at most SESSION_END_S. Call `flush` first."""
        self.close_soon()
        await self._tasks.close(SESSION_END_S)

    def _tell_silence(self, now: float) -> None:
        """Tells once that the slice leaves something without an answer, so that the caller knows what it waits for."""
        if not self._ledger or self._delivering:
            self._quiet_since_s = 0.0
        elif not self._quiet_since_s:
            self._quiet_since_s = now
        elif now - self._quiet_since_s >= SILENT_S and not self._silence_told:
            self._silence_told = True
            self._up = False
            self._telling.silent(self.slice_name, self, SILENT_S, self.away)

    def _heard(self) -> None:
        """Records that the slice answered, perhaps for the first time after it was away."""
        self._quiet_since_s = 0.0
        self._silence_told = False
        if self.away:
            _log.info("%s: back, at %s", self._what, self._address)
            self.away = ""
        if not self._closed:
            self._up = True
            self._telling.up(self.slice_name, self)

    def _is_away(self, reason: str) -> None:
        self._up = False
        if not self._closed:
            self._telling.away(self.slice_name, self, reason)

    def _watch(self, frame: Frame) -> None:
        self._deadlines.watch(frame, f"request to slice {self.slice_name}")

    def _closed_error(self, outcome: str = "nothing of this call was sent") -> Unavailable:
        what = f"session to slice {self.slice_name}"
        return Unavailable(f"{what} is closed; {outcome}", subject=what)

    def _address_may_have_changed(self) -> None:
        if self._stream is not None and self._map.current.address_of(self.slice_name) not in ("", self._address):
            self._stream.cancel()

    async def _run(self) -> None:
        while not self._closed:
            self._address = self._leader or self._map.current.address_of(self.slice_name)
            self._leader = ""
            try:
                if self._address:
                    await self._serve()
                else:
                    self._lost(Unavailable("it has no leader"))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                if self._broken is not None:
                    self._broke(self._broken)
            except ShoalError as error:
                self._lost(error)
            except Exception as error:
                self._broke(error)
            await self._map.change(self._backoff.pause_s())

    def _lost(self, error: ShoalError) -> None:
        """Fails all waiting calls if the slice refused the stream and repeating cannot help; else it is tried again."""
        news = not self.away and not self._closed
        if news:
            _log.info("%s: away; trying again: %s", self._what, error)
        self.away = error.message
        self._is_away(error.message)
        if isinstance(error, MapOrLeaderChanged | OutcomeUnknown | ResourceExhausted):
            self._leader = error.leader
            self._map.suspect()
            return
        self._backoff.distrust()
        if news:
            self._telling.error(error)
        self._consumer.refused(error)
        self._give_up(error)

    def _broke(self, error: BaseException) -> None:
        """Fails all waiting calls after a defect, or an error that no adapter knows: repeats could fail for ever."""
        trace = None if self._backoff.distrust() else error  # Once is enough, if it comes again and again.
        self.away = f"{type(error).__name__}: {error}"
        _log.warning("%s: failed unexpectedly, and begins anew: %s", self._what, self.away, exc_info=trace)
        self._is_away(self.away)
        failure = Unavailable(
            f"{self._what} failed unexpectedly ({self.away}); the outcome is unknown, and the session begins anew",
            subject=f"slice {self.slice_name}",
        )
        self._telling.error(failure)
        self._give_up(failure)

    def _give_up(self, error: ShoalError) -> None:
        for frame in self._ledger.clear():
            self._retire(frame, error)

    async def _serve(self) -> None:
        """Serves one stream until it is lost. Raises ShoalError; CancelledError if it was ended from here."""
        writing: asyncio.Task[None] | None = None
        self._broken = None
        stream = self._stream = self._transport.open_session(self._address)
        try:
            self.stream_number += 1
            _log.debug("%s: opens stream %d to %s", self._what, self.stream_number, self._address)
            await stream.write(wire.SessionRequest(open=self._open))
            self._ledger.begin_stream(self._begin())
            writing = self._tasks.start("write", self._write(stream))
            await self._read(stream)
        finally:
            try:
                self._end_stream(writing)
            finally:
                await stream.close()

    def _end_stream(self, writing: asyncio.Task[None] | None) -> None:
        if self._stream is not None:
            self._stream.cancel()
        self._stream = None
        if writing is not None:
            writing.cancel()
        for ended in self._ledger.end_stream():
            self._retire(ended, None)
        self._consumer.stream_ended()
        for callback in self._stream_ends:
            callback()

    def _begin(self) -> Sequence[Frame]:
        frames = self._consumer.first_frames()
        for frame in frames:
            self._watch(frame)
        return frames

    async def _write(self, stream: SessionStream) -> None:
        try:
            while True:
                frame = self._ledger.take()
                told = self.away or self._silence_told
                if frame is None and told and not (self._ledger or self._closed):
                    self.send(ProbeFrame())  # Nothing else would bring the answer that says that the slice is back.
                elif frame is None:
                    await self._wait_for_work()
                elif (request := self._numbered(frame)) is not None:
                    await stream.write(request)
        except ShoalError:
            stream.cancel()  # The reader learns why.
        except Exception as error:
            self._broken = error
            stream.cancel()

    def _numbered(self, frame: Frame) -> wire.SessionRequest | None:
        """Returns the request to send. A frame that cannot be written harms its own callers only."""
        try:
            request = self._ledger.numbered(frame)
        except Exception as error:
            _log.warning("%s: a frame could not be written", self._what, exc_info=error)
            problem = f"{self._what}: a frame could not be written ({type(error).__name__}: {error}); it was not sent"
            self._retire(frame, Malformed(problem, subject=f"slice {self.slice_name}"))
            return None
        if request is None:
            self._retire(frame, None)
        return request

    async def _wait_for_work(self) -> None:
        self._wake.clear()
        await self._wake.wait()
        # More requests are likely while answers are under way; otherwise one turn of the loop is enough.
        await asyncio.sleep(LINGER_S if self._ledger.in_flight > LINGER_FRAMES_MIN else 0)

    async def _read(self, stream: SessionStream) -> None:
        began = asyncio.get_running_loop().time()
        while True:
            response = await stream.read()
            if response is None:
                raise Unavailable(f"slice {self.slice_name} ended the stream")
            self._backoff.reset(asyncio.get_running_loop().time() - began)
            self._quiet_since_s = 0.0
            if not self._up:
                self._heard()
            for answer in response.answers:
                self._answer(answer)
            parts = response.deliveries, response.resets, response.ended, response.gaps
            if any(parts) or response.HasField("ack_timeouts") or self._consumer.holding:
                self._delivering = True
                try:
                    await self._consumer.delivered(response)
                finally:
                    self._delivering = False

    def _answer(self, answer: wire.Answer) -> None:
        frame = self._ledger.find(answer.sequence)
        if frame is None:
            return
        error = from_wire(answer.error) if answer.HasField("error") else None
        if isinstance(error, MapOrLeaderChanged | OutcomeUnknown) and not isinstance(error, NotOwner):
            raise error  # The frame stays, and is sent again with its number.
        self._ledger.settle(frame)
        try:
            if error is None:
                frame.answered(answer)
        except Exception as problem:
            error = Malformed(f"answer {answer.sequence} of slice {self.slice_name} cannot be read: {problem!r}")
        self._retire(frame, error)
        self._wake.set()

    def _retire(self, frame: Frame, error: ShoalError | None) -> None:
        try:
            if error is not None:
                frame.failed(error)
        except Exception:
            _log.warning("%s: the callers of a frame could not be told", self._what, exc_info=True)
        if frame.cost_bytes:
            self.room.give(frame.cost_bytes)
        self._deadlines.forget(frame)
        self._ledger.over(frame)
        self._answered.set()
