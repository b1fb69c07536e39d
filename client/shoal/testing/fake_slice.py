"""Is a slice in memory: sessions, deliveries, and faults on demand.

It can be cut (streams end, state stays), silent (nothing is answered), away and back. Not here: what changes do
(fake_state.py), how a client reaches it (memory_transport.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from os import urandom
from typing import Any

from shoal.testing.fake_admin import FakeAdmin
from shoal.testing.fake_looks import FakeLooks
from shoal.testing.fake_session import FakeSession, consumed_elsewhere, delivery_of, refused_pull
from shoal.testing.fake_state import FakeState, refused_first
from shoal.testing.fake_watch import FakeWatches
from shoal.testing.limits import FAKE_EPOCH
from shoal_contract.errors import ShoalError, from_wire
from shoal_contract.limits import PRODUCER_BYTES, PULL_LEASE_MS_MAX, WINDOW_MESSAGES_DEFAULT
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.tasks import Tasks


class FakeSlice:
    """Answers sessions as a slice does. Made by `FakeCluster`.

    `owner_of` and `version`: return what the map says, as this slice sees it.
    """

    def __init__(self, name: str, owner_of: Callable[[bytes], str], version: Callable[[], int]) -> None:
        self.state = FakeState(name, owner_of, version)
        """Keeps its queues, keys and bindings."""
        self.name = name
        self.address = f"{name}:1"
        """The address in the map; no socket listens there."""
        self.away = False
        """True while nothing reaches it."""
        self.frames: list[wire.SessionRequest] = []
        """Everything received, for tests to look at and to clear."""
        self.opens: list[wire.Open] = []
        """The first frame of each stream."""
        self.answering = asyncio.Event()
        """Cleared: changes are applied, but nothing is answered."""
        self.answering.set()
        self.tells_lives = True
        """False: does as a slice of an older version."""
        self.tells_unacked = self.tells_nacks_taken = self.tells_lives_of_new_parts = True
        self.takes_acks_of_lost_streams = True
        """False: does as a slice of an older version."""
        self.late_attached = False
        """True if the answer to an attach comes behind the first deliveries."""
        self.ignored: set[str] = set()
        """Kinds of frames that are neither done nor answered."""
        self.looks = FakeLooks(lambda kind: kind in self.ignored, self.answering)
        self.refuse_frames: list[ShoalError] = []
        """Errors with which whole frames are refused, one each; nothing of them is applied."""
        self.refuse_attaches: list[ShoalError] = []
        """Errors with which attaches are refused, one each, whatever other frames come meanwhile."""
        self.admin = FakeAdmin(name, self.state.queues)
        """Answers for its administration."""
        self.admin_address = ""
        """The address of a port of its administration's own; "": there is none."""
        self._sessions: list[FakeSession] = []
        self.watches = FakeWatches(self._members_of, lambda: list(self.state.keys))
        """What it tells watches."""
        self.state.note_given = self._begin_ack_timeout
        self.state.used = lambda queue: any(queue in session.queues.values() for session in self._sessions)

    def go_away(self) -> None:
        """Ends all streams, and refuses new ones until `come_back`, as a slice that is down. It keeps what it has."""
        self.away = True
        self.cut()

    def come_back(self) -> None:
        """Ends what `go_away` began, and answers again."""
        self.away = False
        self.answering.set()

    def cut(self) -> None:
        """Ends all streams, as a lost connection does; what waits to be sent is lost."""
        for session in self._sessions:
            session.cut = True
            session.outbox.put_nowait(None)
        self.watches.cut()

    @property
    def unsent_responses(self) -> int:
        """Returns how many responses wait because their clients do not read."""
        return sum(session.outbox.qsize() for session in self._sessions)

    @property
    def session_count(self) -> int:
        """Returns the number of open streams."""
        return len(self._sessions)

    async def Session(  # noqa: N802 - gRPC's name
        self, requests: AsyncIterator[wire.SessionRequest], context: object
    ) -> AsyncIterator[wire.SessionResponse]:
        """Serves one stream."""
        session = FakeSession()
        self._sessions.append(session)
        tasks = Tasks(f"fake slice {self.name}")
        tasks.start("read", self._read(session, requests))
        try:
            while (response := await session.outbox.get()) is not None:
                await self.answering.wait()
                if session.cut:
                    break
                yield response
        finally:
            tasks.cancel()
            self._sessions.remove(session)
            self.state.release(session)
            self.state.farewells.look()
            self.pump()

    async def Watch(  # noqa: N802 - gRPC's name
        self, request: wire.WatchRequest, context: object
    ) -> AsyncIterator[wire.WatchResponse]:
        """Serves one watch."""
        async for response in self.watches.stream(request):
            yield response

    async def Publish(self, request: wire.PublishRequest, context: object) -> wire.PublishResponse:  # noqa: N802
        """Publishes a chunk; a repeat of a producer's number gets the first answer. Raises NotOwner, and what refused
        it."""
        self.state.check_owner(request.key)
        publishes = wire.Publishes(
            keys=[request.key],
            chunks=[request.chunk.SerializeToString()],
            mandatory=request.mandatory,
            ttl_ms=request.ttl_ms,
            not_before_ms=request.not_before_ms,
            live=request.live,
        )
        change = wire.Change(steps=[wire.Step(publishes=publishes)]).SerializeToString()
        producer, sequence = (request.producer, request.sequence) if request.producer else (urandom(PRODUCER_BYTES), 1)
        outcome = wire.Outcome.FromString(self.state.change(producer, sequence, sequence - 1, change)).steps[0]
        if outcome.refusals:
            raise from_wire(outcome.refusals[0].error)
        consumed = sum(self._consumed())
        self.pump()
        await self.answering.wait()
        return wire.PublishResponse(offset=outcome.offsets[0], queues=outcome.queues[0], consumed=consumed)

    async def Describe(self, request: wire.DescribeRequest, context: object) -> wire.DescribeResponse:  # noqa: N802
        """Describes queues and keys. Raises ResourceExhausted, and what `refuse_frames` says."""
        self.frames.append(asked := wire.SessionRequest(describe=request.describe))
        await self.looks.wait(asked)
        answer = self._answer(None, asked)
        if answer.HasField("error"):
            raise from_wire(answer.error)
        return wire.DescribeResponse(description=answer.description)

    async def Pull(self, request: wire.PullRequest, context: object) -> wire.PullResponse:  # noqa: N802 - gRPC's name
        """Takes messages for a lease. Raises NoSuchQueue; Conflict for an exclusive queue that a session consumes."""
        pull, lease = request.pull, object()
        if pull.peek:
            self.frames.append(wire.SessionRequest(pull=pull))
            await self.looks.wait(self.frames[-1])
        if refused := refused_pull(self.state.queues, pull.queue, self._sessions):
            raise refused
        gaps = [] if pull.peek else list(self.state.gaps(pull.queue))
        taken = list(self.state.take(pull.queue, lease, pull.messages_max or 1, pull.peek, pull.bytes_max))
        if not pull.peek:
            lease_ms = pull.lease_ms or PULL_LEASE_MS_MAX
            asyncio.get_running_loop().call_later(lease_ms / 1000, self._released, lease)
        await self.answering.wait()
        return wire.PullResponse(gaps=gaps, deliveries=[delivery_of(given, []) for given in taken])

    async def Ack(self, request: wire.AckRequest, context: object) -> wire.AckResponse:  # noqa: N802 - gRPC's name
        """Acks messages, whichever session was given them. Raises NotOwner."""
        self.state.check_owner(*(ack.key for ack in request.acks))
        for ack in request.acks:
            for queue in filter(None, self.state.queues.named(ack)):
                self.state.ack(queue, ack, None)
        self.pump()
        await self.answering.wait()
        return wire.AckResponse()

    async def Nack(self, request: wire.NackRequest, context: object) -> wire.NackResponse:  # noqa: N802 - gRPC's name
        """Gives messages back, whichever session was given them. Raises NotOwner."""
        self.state.check_owner(*(nack.key for nack in request.nacks.messages))
        self._nack(None, request.nacks)
        self.pump()
        await self.answering.wait()
        return wire.NackResponse()

    def _released(self, holder: object) -> None:
        """Gives again what a lease or a delay has kept."""
        self.state.release(holder, reason=b"timeout")
        self.pump()

    def _attached(self) -> set[bytes]:
        return {queue for session in self._sessions for queue in session.queues.values()}

    def _members_of(self, name: bytes) -> dict[bytes, bool]:
        attached = self._attached()
        return {queue: queue in attached for queue in self.state.bound_to(name)}

    def _consumed(self) -> list[int]:
        """Returns for each publish of the last change how many of the queues that it was routed to are consumed."""
        attached = self._attached()
        return [len(attached.intersection(queues)) for queues in self.state.routed]

    async def _read(self, session: FakeSession, requests: AsyncIterator[wire.SessionRequest]) -> None:
        async for request in requests:
            if request.HasField("open"):
                session.producer = request.open.producer
                self.opens.append(request.open)
                continue
            self.frames.append(request)
            if request.WhichOneof("frame") in self.ignored:
                continue
            answer = self._answer(session, request)
            self.state.farewells.look()
            late = self.late_attached and request.HasField("attach")
            if late:
                self.pump()
            session.outbox.put_nowait(wire.SessionResponse(answers=[answer]))
            self._tell_resets()
            self.pump()

    def _answer(self, session: FakeSession | None, request: wire.SessionRequest) -> wire.Answer:
        answer = wire.Answer(sequence=request.sequence)
        refusals = self.refuse_frames or (self.refuse_attaches if request.HasField("attach") else [])
        if refusals:
            answer.error.CopyFrom(refusals.pop(0).to_wire())
            return answer
        kind = request.WhichOneof("frame")
        if kind == "describe":
            try:
                answer.description.CopyFrom(self.state.describe(request.describe))
            except ShoalError as refused_describe:
                answer.error.CopyFrom(refused_describe.to_wire())
            return answer
        assert session is not None, "only a describe needs none"
        if kind == "change":
            outcome = self.state.change(session.producer, request.sequence, request.settled, request.change)
            refused = refused_first(outcome) if wire.Change.FromString(request.change).atomic else None
            if refused is not None:
                answer.error.CopyFrom(refused)
            else:
                answer.outcome = outcome
                answer.consumed.extend(self._consumed())
        elif kind == "attach":
            self._attach(session, request.attach, answer.attached)
        elif kind == "detach":
            for handle in request.detach.handles:
                if handle in session.queues:
                    self.state.release(session, session.queues.pop(handle))
        elif kind == "acks":
            self._ack(session, request.acks)
            if request.acks.tell_unacked and self.tells_unacked:
                answer.unacked.places.extend(self._unacked(session, request.acks))
                answer.unacked.SetInParent()
        elif kind == "nacks":
            self._nack(session, request.nacks)
        elif kind == "pull":
            pull = request.pull
            if no_pull := refused_pull(
                self.state.queues, pull.queue, [one for one in self._sessions if one is not session]
            ):
                answer.error.CopyFrom(no_pull.to_wire())
                return answer
            if not pull.peek:
                answer.pulled.gaps.extend(self.state.gaps(pull.queue))
            answer.pulled.life = self.state.queues.life_of(pull.queue) if self.tells_lives else 0
            taken = list(self.state.take(pull.queue, session, pull.messages_max, pull.peek, pull.bytes_max))
            answer.pulled.deliveries.extend(delivery_of(given, []) for given in taken)
        return answer

    def _attach(self, session: FakeSession, attach: wire.Attach, answer: wire.Attached) -> None:
        for queue, handle in zip(attach.queues, attach.handles, strict=True):
            if self._takes_over(session, queue, handle):
                session.attach(queue, handle, attach.window_messages or WINDOW_MESSAGES_DEFAULT)
        lives = [self.state.queues.life_of(queue) for queue in attach.queues]
        answer.absent.extend(handle for handle, life in zip(attach.handles, lives, strict=True) if not life)
        parts = map(self.state.queues.parts.get, attach.queues)
        timeouts_ms = [part.options.ack_timeout_ms if part is not None else 0 for part in parts]
        answer.ack_timeouts_ms.extend(timeouts_ms if any(timeouts_ms) else ())
        answer.tells_nacks_taken, answer.epoch = self.tells_nacks_taken, FAKE_EPOCH
        if self.tells_lives:
            answer.lives.extend(lives)

    def _takes_over(self, session: FakeSession, queue: bytes, handle: int) -> bool:
        """Ends the attachment that an exclusive queue has, or refuses the session. Tells the one that goes."""
        part = self.state.queues.parts.get(queue)
        if part is None or part.options.exclusive == "none":
            return True
        error = consumed_elsewhere(queue).to_wire()
        for other in self._sessions:
            held = next((held for held, name in other.queues.items() if name == queue), None)
            if held is None or other is session:
                continue
            if part.options.exclusive == "oldest" and other.producer != session.producer:
                ended = wire.Ended(handle=handle, error=error)
                session.outbox.put_nowait(wire.SessionResponse(ended=[ended]))
                return False
            self.state.release(other, other.queues.pop(held))
            other.outbox.put_nowait(wire.SessionResponse(ended=[wire.Ended(handle=held, error=error)]))
        return True

    def _ack(self, session: FakeSession, acks: wire.Acks) -> None:
        """Records acks. As at a real slice, an ack for what this session does not have out changes nothing, unless it
        is of a lost stream."""
        for ack in acks.acks:
            named = (*self.state.queues.named(ack), *session.queues_of(ack.handles, acks))
            for queue in filter(None, named):
                if acks.of_lost_stream and ack.low and self.takes_acks_of_lost_streams:
                    self.state.ack_anywhere(queue, ack)
                else:
                    self.state.ack(queue, ack, session)

    def _nack(self, session: FakeSession | None, nacks: wire.Nacks) -> None:
        """Gives messages back that the session has; None: that anyone has."""
        delayed = object()
        if session is not None:
            session.windows.update(dict.fromkeys(nacks.stop, 0))
            if nacks.number and self.tells_nacks_taken:
                named = sum(len(nack.handles) + len(nack.queues) for nack in nacks.messages)
                session.nacks_taken = max(session.nacks_taken, nacks.number + named - 1)
        for nack in nacks.messages:
            attached = [] if session is None else session.queues_of(nack.handles, nacks)
            for queue in filter(None, (*self.state.queues.named(nack), *attached)):
                self.state.nack(queue, nack, session, delayed, nacks.unseen)

        if nacks.delay_ms:
            asyncio.get_running_loop().call_later(nacks.delay_ms / 1000, self._released, delayed)
        else:
            self.state.release(delayed)

    def _begin_ack_timeout(self, queue: bytes, key: bytes, first: int, end: int, session: object, take: int) -> None:
        """Takes messages back when the queue's ack timeout is over. Its other sessions come first then."""
        timeout_ms = self.state.queues.parts[queue].options.ack_timeout_ms

        def over() -> None:
            if self.state.time_out(queue, key, range(first, end), session, take):
                self._sessions.sort(key=lambda one: one is session)
                self.pump()

        if timeout_ms and isinstance(session, FakeSession):  # A lease has a time of its own.
            asyncio.get_running_loop().call_later(timeout_ms / 1000, over)

    def _unacked(self, session: FakeSession, acks: wire.Acks) -> list[int]:
        """Returns the places of what is still unacked; a handle that is not attached counts so."""
        named = self.state.queues.named
        queues = [(ack, queue) for ack in acks.acks for queue in (*session.queues_of(ack.handles, acks), *named(ack))]
        return [at for at, (ack, queue) in enumerate(queues) if queue is None or self.state.is_unacked(queue, ack)]

    def _tell_resets(self) -> None:
        dropped = set(self.state.take_dropped())
        for session in self._sessions if dropped and self.tells_lives else ():
            handles = [handle for handle, queue in session.queues.items() if queue in dropped]
            if handles:
                session.tell_resets(handles)
        self._tell_ack_timeouts()

    def _tell_ack_timeouts(self) -> None:
        """Tells sessions that have a queue attached which has just got its part here."""
        queues = self.state.queues
        made, queues.made = set(queues.made), []
        for session in self._sessions if made else ():
            told = wire.AckTimeouts()
            for handle, queue in session.queues.items():
                if queue in made and queue in queues.parts:
                    told.handles.append(handle)
                    told.ms.append(queues.parts[queue].options.ack_timeout_ms)
                    if self.tells_lives_of_new_parts:
                        told.lives.append(queues.life_of(queue))
            if told.handles:
                session.outbox.put_nowait(wire.SessionResponse(ack_timeouts=told))

    def pump(self) -> None:
        """Gives attached sessions what their windows allow: one delivery for all queues of a session that get it."""
        for session in self._sessions:
            together: dict[tuple[Any, ...], list[int]] = {}
            gaps: list[wire.Gap] = []
            for handle, queue in session.queues.items():
                room = session.windows[handle] - self.state.unacked(queue, session)
                for gap in self.state.gaps(queue) if room > 0 else ():
                    gap.handles.append(handle)
                    gaps.append(gap)
                for given in self.state.take(queue, session, room):
                    together.setdefault(given, []).append(handle)
            if together or gaps:
                session.give([delivery_of(given, handles) for given, handles in together.items()], gaps)
        for key, chunk, queues in self.state.take_live():
            self._give_live(key, chunk, queues)
        self.watches.tell()

    def _give_live(self, key: bytes, chunk: bytes, queues: list[bytes]) -> None:
        """Gives a live chunk to the first session that has each queue, behind what it was given before."""
        for session in self._sessions:
            handles = [handle for handle, queue in session.queues.items() if queue in queues]
            queues = [queue for queue in queues if queue not in session.queues.values()]
            if handles:
                session.give_live(key, chunk, handles)
