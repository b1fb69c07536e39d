"""Numbers of frames over streams: changes keep theirs, questions get new ones, in an order the slice can follow."""

from __future__ import annotations

from shoal.frames import DetachFrame, QuestionFrame
from shoal.ledger import Ledger
from shoal.limits import FRAMES_IN_FLIGHT_MAX
from shoal.requests import DropRequest, Request
from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire

Sent = list[tuple[int, int, str | None]]


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


async def test_answers_let_the_slice_forget() -> None:
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


async def test_a_new_stream_repeats_changes_first_and_numbers_questions_anew() -> None:
    ledger = Ledger(unused)
    change(ledger)
    send_all(ledger)
    ledger.add_frame(QuestionFrame(wire.Describe(), deadline=1e9))
    send_all(ledger)
    change(ledger)
    assert send_all(ledger) == [(3, 0, "change")]
    attach = QuestionFrame(wire.Pull(), deadline=1e9)
    assert ledger.end_stream() == []
    ledger.begin_stream([attach])
    again = [(1, 0, "change"), (3, 0, "change"), (4, 0, "pull"), (5, 0, "describe")]
    assert send_all(ledger) == again
    assert ledger.end_stream() == []
    ledger.begin_stream([])
    assert [kind for _, _, kind in send_all(ledger)] == ["change", "change", "pull", "describe"]


async def test_a_stream_lost_while_repeating_changes_loses_none() -> None:
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


async def test_a_detach_is_done_by_the_end_of_its_stream() -> None:
    ledger = Ledger(unused)
    sent, waiting = DetachFrame(wire.Detach(handles=[1])), DetachFrame(wire.Detach(handles=[2]))
    ledger.add_frame(sent)
    send_all(ledger)
    ledger.add_frame(waiting)
    assert ledger.end_stream() == [sent, waiting]
    assert sent.future.done() and waiting.future.done() and not ledger


async def test_a_detach_is_sent_though_its_caller_has_left() -> None:
    ledger = Ledger(unused)
    detach = DetachFrame(wire.Detach(handles=[1]))
    ledger.add_frame(detach)
    detach.future.cancel()
    assert send_all(ledger) == [(1, 0, "detach")]


async def test_what_nobody_waits_for_any_more_takes_no_number() -> None:
    ledger = Ledger(unused)
    request = DropRequest(b"queue", 0, deadline=1e9)
    ledger.add_request(request)
    request.future.cancel()
    assert send_all(ledger) == []
    change(ledger)
    assert send_all(ledger) == [(1, 0, "change")]


async def test_frames_in_flight_are_bounded() -> None:
    ledger = Ledger(unused)
    for _ in range(FRAMES_IN_FLIGHT_MAX + 1):
        ledger.add_frame(QuestionFrame(wire.Describe(), deadline=1e9))
    assert len(send_all(ledger)) == FRAMES_IN_FLIGHT_MAX == ledger.in_flight
