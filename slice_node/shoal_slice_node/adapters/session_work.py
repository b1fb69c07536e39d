"""Begins what the frames of one session request, and makes its responses. Not here: the transport (session_stream)."""

from __future__ import annotations

from collections.abc import Callable

from shoal_contract.errors import Malformed, ShoalError
from shoal_contract.limits import PULL_LEASE_MS_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters import requests
from shoal_slice_node.adapters.answer_room import Reservation, described_bytes
from shoal_slice_node.adapters.answers import Answers
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.kept_frames import Frame, Kept
from shoal_slice_node.adapters.limits import (
    BYTES_PER_WEIGHT,
    DELIVERIES_PER_WRITE_BYTES,
    DESCRIBE_WEIGHT,
    ENDED_PER_RESPONSE_MAX,
    LARGE_ANSWER_BYTES,
    LARGE_ANSWER_WEIGHT,
    NEW_PARTS_PER_RESPONSE_MAX,
    OPERATIONS_PER_WEIGHT,
    RESETS_PER_RESPONSE_MAX,
    RESPONSE_BYTES_MAX,
)
from shoal_slice_node.core.apply.records import ChangeHead
from shoal_slice_node.core.dispatch.pulling import PullAnswer
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.node import requests as node_requests
from shoal_slice_node.core.node import settling
from shoal_slice_node.core.node.named_feeds import named_feeds
from shoal_slice_node.core.turns import Source
from shoal_slice_node.core.verbs.changes import Checked


class SessionWork:
    """Does one session's work. `answers`: those that it is owed; what takes a frame must see that they have room."""

    def __init__(self, broker: Broker, session: Session, source: Source, producer: bytes, answers: Answers) -> None:
        self._broker = broker
        self._session = session
        self._source = source
        self._producer = producer
        self._answers = answers

    def take(self, frame: Frame, kept: Kept, large_bytes: int) -> int:
        """Begins what a frame requests. Returns how many of its bytes in the room of large frames can be freed now."""
        weight = _weight(frame)
        self._answers.expect(weight)
        if isinstance(frame.checked, ShoalError):  # It is not raised: its traceback would keep the frame.
            kept.free()
            self._answers.add(self._broker.refusal(frame.request.sequence, frame.checked), weight)
            return large_bytes
        try:
            return self._begin(frame, weight, large_bytes, kept)
        except ShoalError as error:
            kept.free()
            self._answers.add(self._broker.refusal(frame.request.sequence, error), weight)
        return large_bytes

    def _begin(self, frame: Frame, weight: int, large_bytes: int, kept: Kept) -> int:
        kind, request = frame.kind, frame.request
        broker, session, sequence = self._broker, self._session, request.sequence
        source = self._source

        def answer(answer: wire.Answer) -> None:
            kept.free()
            self._answers.add(answer, weight)

        if kind == "change":
            self._change(frame, weight, large_bytes, kept)
            return 0
        if kind == "acks":
            self._acks(sequence, request.acks, answer, weight, kept)
        elif kind == "nacks":
            self._nacks(sequence, request.nacks, answer)
        elif kind == "attach":
            work = node_requests.attach(broker.node, session, request.attach)
            requests.submit_work(broker, source, sequence, work, answer)
        elif kind == "detach":
            work = node_requests.detach(broker.node, session, request.detach)
            requests.submit_work(broker, source, sequence, work, answer)
        elif kind == "pull":
            pulled = PullAnswer()
            others_wait = broker.answers.others_wait
            read = node_requests.pull(broker.node, session, request.pull, 0, PULL_LEASE_MS_MAX, pulled, others_wait)
            looks = request.pull.peek  # What is pushed later must not overtake what is pulled.
            requests.submit_read(broker, source, sequence, read, *self._large(weight, kept, pulled.left), looks=looks)
        elif kind == "describe":
            read = node_requests.describe(broker.node, request.describe)
            size_bytes = described_bytes(request.describe)
            requests.submit_read(broker, source, sequence, read, *self._large(weight, kept), size_bytes, looks=True)
        else:
            raise Malformed(f"frame {sequence} is {kind or 'empty'}: unknown here, or Open a second time")
        return large_bytes

    def _large(
        self, weight: int, kept: Kept, on_left: Callable[[], None] | None = None
    ) -> tuple[requests.Answered, Callable[[Reservation], bool]]:
        """Returns what takes a large answer, and what takes its reservation. `on_left`: called when the answer is
        taken to be written."""
        add, keep = self._answers.large(weight, on_left)

        def answer(answer: wire.Answer) -> None:
            kept.free()
            add(answer)

        return answer, keep

    def _change(self, frame: Frame, weight: int, large_bytes: int, kept: Kept) -> None:
        """Submits a change. Its weight grows with its operations: each may be refused with a text, so the answer may
        grow too."""
        checked, request = frame.checked, frame.request
        assert isinstance(checked, Checked)
        head = ChangeHead(self._producer, request.sequence, request.settled)
        more = checked.operations // OPERATIONS_PER_WEIGHT

        def answer(answer: wire.Answer) -> None:
            kept.free()
            self._answers.add(answer, weight + more)

        requests.submit_change(
            self._broker, self._source, head, frame.data, checked, answer, large_bytes, self._session
        )
        self._answers.expect(more)

    def _acks(
        self, sequence: int, acks: wire.Acks, answer: Callable[[wire.Answer], None], weight: int, kept: Kept
    ) -> None:
        broker, answers = self._broker, self._answers
        broker.check_takes_changes(frees=True)
        unacked: list[int] | None = [] if acks.tell_unacked else None
        seen = settling.resets_seen(acks)
        prepared: bytes | None = None
        """The answer that waits for the flush: its places take twenty times its bytes as a list."""

        def flushed(error: ShoalError | None) -> None:
            if error is None and prepared is not None:
                answers.add_prepared(prepared, weight)
                return
            if prepared is not None:
                answers.drop_prepared(prepared)
            answer(wire.Answer(sequence=sequence) if error is None else broker.refusal(sequence, error))

        def taken(error: ShoalError | None) -> None:
            nonlocal prepared
            kept.free()
            if error is not None:
                flushed(error)
                return
            if unacked is not None:
                prepared = answers.prepare(wire.Answer(sequence=sequence, unacked=wire.Unacked(places=unacked)))
                unacked.clear()
            named = None if prepared is not None else named_feeds(broker.node, self._session, acks.acks)
            broker.node.acks.then(flushed, named)

        lost, named_acks = acks.of_lost_stream, list(acks.acks)
        settling.take_acks(broker.node, self._source, self._session, named_acks, taken, False, unacked, seen, lost)
        broker.start_due_work()

    def _nacks(self, sequence: int, nacks: wire.Nacks, answer: Callable[[wire.Answer], None]) -> None:
        broker = self._broker

        def taken(error: ShoalError | None) -> None:
            answer(wire.Answer(sequence=sequence) if error is None else broker.refusal(sequence, error))

        settling.take_nacks(broker.node, self._source, self._session, nacks, taken, everyone=False)
        broker.start_due_work()

    def response(self) -> tuple[bytes, int]:
        """Returns a response with what is ready, serialized, up to a response's size; and the memory of its deliveries
        in bytes."""
        parts, session = list[bytes](), self._session
        room = self._answers.take(parts, RESPONSE_BYTES_MAX)
        if not session.to_send:
            return b"".join(parts), 0
        response = wire.SessionResponse()
        cost_bytes = 0
        if session.tells:
            response.MergeFrom(self._told())
        if session.waiting and not session.tells and room >= RESPONSE_BYTES_MAX // 2:
            taken = self._broker.dispatcher.take(session, min(room, DELIVERIES_PER_WRITE_BYTES))
            cost_bytes = taken.cost_bytes
            if taken.gaps:
                response.gaps.extend(taken.gaps)
            response.deliveries.extend(taken.deliveries)
        if not parts:
            return response.SerializeToString(), cost_bytes
        parts.append(response.SerializeToString())
        return b"".join(parts), cost_bytes

    def _told(self) -> wire.SessionResponse:
        """Returns what the client is to be told of its handles, up to a response's bounds."""
        session = self._session
        resets = session.resets.take(RESETS_PER_RESPONSE_MAX)
        if session.resets:  # The rest, too, may be of lives that began behind one that waits.
            return wire.SessionResponse(resets=resets)
        told = wire.SessionResponse(resets=resets, ended=session.ended_handles.take(ENDED_PER_RESPONSE_MAX))
        if session.new_parts:
            parts = session.take_new_parts(NEW_PARTS_PER_RESPONSE_MAX)
            timeouts_ms, lives = zip(*parts.values(), strict=True)
            told.ack_timeouts.MergeFrom(wire.AckTimeouts(handles=parts, ms=timeouts_ms, lives=lives))
        return told


def _weight(frame: Frame) -> int:
    """Returns the weight of a frame among the answers that a session is owed. A change weighs 1: its pending bytes are
    counted elsewhere, and more for a long answer is added later. Other frames are kept in memory until they are
    answered, so their weight grows with their size."""
    if frame.kind == "change":
        return 1
    weight = 1 + frame.bytes // BYTES_PER_WEIGHT
    if frame.kind == "describe":
        answer_weight = described_bytes(frame.request.describe) * LARGE_ANSWER_WEIGHT // LARGE_ANSWER_BYTES
        return weight + max(DESCRIBE_WEIGHT - 1, answer_weight)
    return weight + (LARGE_ANSWER_WEIGHT if frame.kind == "pull" else 0)
