"""Numbers of frames over streams: changes keep theirs, questions get new ones, in an order the slice can follow."""

from __future__ import annotations

from shoal.core.frames import DetachFrame, ProbeFrame, QuestionFrame
from shoal.core.ledger import Ledger
from shoal.core.requests import DropRequest, Request
from shoal.limits import FRAMES_BEFORE_CHANGE_MAX, FRAMES_IN_FLIGHT_MAX
from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire

Sent = list[tuple[int, int, str | None]]


class Waiting:
    """A waiter that keeps what it is given. The core needs no event loop."""

    def __init__(self) -> None:
        self.results: list[object] = []

    def done(self) -> bool:
        return bool(self.results)

    def set_result(self, result: object, /) -> None:
        self.results.append(result)

    def set_exception(self, exception: BaseException, /) -> None:
        self.results.append(exception)

    def leave(self) -> None:
        """The caller waits no more."""
        self.results.append("left")


def question(kind: wire.Detach | wire.Pull) -> QuestionFrame:
    return QuestionFrame(kind, 1e9, Waiting())


def unused(request: Request, error: ShoalError) -> None:
    raise AssertionError("nothing here is routed")


def change(ledger: Ledger) -> None:
    ledger.add_request(DropRequest(b"queue", 0, deadline=1e9))


def send_all(ledger: Ledger) -> Sent:
    """(sequence, settled, kind) of all that may be sent now."""
    sent: Sent = []
    while (frame := ledger.take()) is not None:
        request = ledger.numbered(frame)
        if request is not None:
            sent.append((request.sequence, request.settled, request.WhichOneof("frame")))
    return sent


def test_answers_let_the_slice_forget() -> None:
    ledger = Ledger(unused)
    change(ledger)
    assert send_all(ledger) == [(1, 0, "change")]
    change(ledger)
    assert send_all(ledger) == [(2, 0, "change")]
    for sequence in (1, 2):
        frame = ledger.find(sequence)
        assert frame is not None
        ledger.settle(frame)
    change(ledger)
    assert send_all(ledger) == [(3, 2, "change")]


def test_a_new_stream_repeats_changes_first_and_numbers_questions_anew() -> None:
    ledger = Ledger(unused)
    change(ledger)
    send_all(ledger)
    ledger.add_frame(question(wire.Detach()))
    send_all(ledger)
    change(ledger)
    assert send_all(ledger) == [(3, 0, "change")]
    attach = question(wire.Pull())
    assert ledger.end_stream() == []
    ledger.begin_stream([attach])
    again = [(1, 0, "change"), (3, 0, "change"), (4, 0, "pull"), (5, 0, "detach")]
    assert send_all(ledger) == again
    assert ledger.end_stream() == []
    ledger.begin_stream([])
    assert [kind for _, _, kind in send_all(ledger)] == ["change", "change", "pull", "detach"]


def test_a_stream_lost_while_repeating_changes_loses_none() -> None:
    ledger = Ledger(unused)
    for _ in range(3):
        change(ledger)
        send_all(ledger)
    ledger.end_stream()
    ledger.begin_stream([])
    frame = ledger.take()
    assert frame is not None and ledger.numbered(frame) is not None
    ledger.end_stream()
    ledger.begin_stream([])
    assert [sequence for sequence, _, _ in send_all(ledger)] == [1, 2, 3]


def test_a_detach_is_done_by_the_end_of_its_stream() -> None:
    ledger = Ledger(unused)
    waiters = [Waiting(), Waiting()]
    sent, waiting = (DetachFrame(wire.Detach(handles=[1]), waiter) for waiter in waiters)
    ledger.add_frame(sent)
    send_all(ledger)
    ledger.add_frame(waiting)
    assert ledger.end_stream() == [sent, waiting]
    assert all(waiter.done() for waiter in waiters) and not ledger


def test_a_detach_is_sent_though_its_caller_has_left() -> None:
    ledger = Ledger(unused)
    caller = Waiting()
    ledger.add_frame(DetachFrame(wire.Detach(handles=[1]), caller))
    caller.leave()
    assert send_all(ledger) == [(1, 0, "detach")]


def test_what_nobody_waits_for_any_more_takes_no_number() -> None:
    ledger = Ledger(unused)
    request = DropRequest(b"queue", 0, deadline=1e9)
    request.waiter = caller = Waiting()
    ledger.add_request(request)
    caller.leave()
    assert send_all(ledger) == []
    change(ledger)
    assert send_all(ledger) == [(1, 0, "change")]


def test_frames_in_flight_are_bounded() -> None:
    ledger = Ledger(unused)
    for _ in range(FRAMES_IN_FLIGHT_MAX + 1):
        ledger.add_frame(question(wire.Detach()))
    assert len(send_all(ledger)) == FRAMES_IN_FLIGHT_MAX == ledger.in_flight


def test_a_change_waits_for_few_questions_however_many_there_are() -> None:
    """Tasks that pull again and again kept every publish of their connection from being sent."""
    ledger = Ledger(unused)
    for _ in range(FRAMES_IN_FLIGHT_MAX):
        ledger.add_frame(question(wire.Pull()))
    change(ledger)
    kinds = [kind for _, _, kind in send_all(ledger)]
    assert kinds.index("change") == FRAMES_BEFORE_CHANGE_MAX
    sent = 0
    for frame in ledger.frames():
        ledger.settle(frame) if frame.sequence else None
    change(ledger)
    while sent < 1000:
        ledger.add_frame(question(wire.Pull()))
        (one,) = [frame for frame in (ledger.take(),) if frame is not None]
        request = ledger.numbered(one)
        assert request is not None
        ledger.settle(one)
        sent += 1
        if request.HasField("change"):
            break
    assert sent <= FRAMES_BEFORE_CHANGE_MAX + 1


def test_acks_go_before_a_change_that_was_made_after_them() -> None:
    ledger = Ledger(unused)
    for _ in range(FRAMES_BEFORE_CHANGE_MAX):
        ledger.add_frame(question(wire.Pull()))
    change(ledger)
    assert [kind for _, _, kind in send_all(ledger)] == ["pull"] * FRAMES_BEFORE_CHANGE_MAX + ["change"]


def test_questions_and_changes_go_in_turn_where_there_is_no_end_of_either() -> None:
    """A program that publishes without a pause must not keep its pulls and acks from being sent."""
    ledger = Ledger(unused)
    kinds: list[str | None] = []
    for _ in range(3 * (FRAMES_BEFORE_CHANGE_MAX + 1)):
        change(ledger)
        ledger.add_frame(question(wire.Pull()))
        frame = ledger.take()
        assert frame is not None
        request = ledger.numbered(frame)
        assert request is not None
        kinds.append(request.WhichOneof("frame"))
        ledger.settle(frame)
    assert kinds == 3 * (["pull"] * FRAMES_BEFORE_CHANGE_MAX + ["change"])


def test_a_flush_waits_for_no_frame_that_nothing_waits_for() -> None:
    ledger = Ledger(lambda *_: None)
    left, asked = question(wire.Pull(queue=b"q")), question(wire.Pull(queue=b"q"))
    ledger.add_frame(left)
    ledger.caller_left(left)
    ledger.add_frame(ProbeFrame())
    assert len(ledger) == 2 and not ledger.awaited
    ledger.add_frame(asked)
    assert ledger.awaited
    for frame in ledger.clear():
        ledger.over(frame)
    ledger.caller_left(asked)  # Told only after it was given up.
    assert not ledger and not ledger.awaited
    ledger.add_frame(question(wire.Pull(queue=b"q")))
    assert ledger.awaited
