"""The frames of one session, from waiting to answered: what is sent next, with which number, and what is sent again.

Pure: no awaits, no clock. Not here: streams (slice_session.py), what frames mean (frames.py, gather.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from shoal.frames import Frame
from shoal.gather import Gather, Rerouted
from shoal.limits import FRAMES_IN_FLIGHT_MAX
from shoal.requests import Request
from shoal_contract.wire import slice_pb2 as wire


class Ledger:
    """Numbers 1, 2, 3 ... over all streams. Numbers sent on one stream ascend."""

    def __init__(self, reroute: Rerouted) -> None:
        self._sequence = 0
        """The last number given."""
        self._pending: dict[int, Frame] = {}
        """Sent on this stream and unanswered, ascending. At most FRAMES_IN_FLIGHT_MAX."""
        self._again: deque[Frame] = deque()
        """Unanswered changes of earlier streams, ascending, all above `_pending`'s; taken from there, so as bounded."""
        self._first: deque[Frame] = deque()
        """What this stream begins with after that: attaches, and unanswered questions of earlier streams."""
        self._waiting: deque[Frame] = deque()
        """Not sent yet, besides changes: each a waiting call of the application, an attach, or a flush of acks."""
        self._gather = Gather(reroute)

    def __bool__(self) -> bool:
        """Something is not answered."""
        return bool(self._pending or self._again or self._first or self._waiting or self._gather)

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def add_request(self, request: Request) -> Frame | None:
        """Returns the frame if this request began it. Raises what cannot be written; nothing is added then."""
        return self._gather.add(request)

    def add_frame(self, frame: Frame) -> None:
        self._waiting.append(frame)

    def frames(self) -> list[Frame]:
        """All that are not answered."""
        return [*self._pending.values(), *self._again, *self._first, *self._waiting, *self._gather.waiting()]

    def clear(self) -> list[Frame]:
        """Gives up all that are not answered, and returns them."""
        frames = self.frames()
        self._pending.clear()
        for waiting in (self._again, self._first, self._waiting):
            waiting.clear()
        while self._gather:
            self._gather.take()
        return frames

    def end_stream(self) -> list[Frame]:
        """The stream is lost: what the next one must have is kept for it. Returns frames that ended with the stream."""
        unanswered = [*self._pending.values(), *self._again]
        self._pending.clear()
        self._again = deque(frame for frame in unanswered if frame.keeps_sequence)
        ended: list[Frame] = []
        self._first = deque(_kept((*unanswered, *self._first), ended))
        self._waiting = deque(_kept(self._waiting, ended))
        return ended

    def begin_stream(self, first_frames: Iterable[Frame]) -> None:
        """A new stream: unanswered changes are sent again, then `first_frames`, then what else is unanswered."""
        self._first.extendleft(reversed(list(first_frames)))

    def take(self) -> Frame | None:
        """The frame to send now; None if there is none, or too many are unanswered."""
        if self._again:
            return self._again.popleft()
        if len(self._pending) >= FRAMES_IN_FLIGHT_MAX:
            return None
        for frames in (self._first, self._waiting):
            if frames:
                return frames.popleft()
        return self._gather.take() if self._gather else None

    def numbered(self, frame: Frame) -> wire.SessionRequest | None:
        """The session request of a frame that was taken, now unanswered; None if nobody needs it any more."""
        request = wire.SessionRequest()
        if not frame.fill(request):
            return None
        if not frame.sequence:
            self._sequence += 1
            frame.sequence = self._sequence
        self._pending[frame.sequence] = frame
        request.sequence = frame.sequence
        request.settled = next(iter(self._pending)) - 1
        return request

    def find(self, sequence: int) -> Frame | None:
        """The unanswered frame of this number; None: answered on an earlier stream, or numbered anew since."""
        return self._pending.get(sequence)

    def settle(self, frame: Frame) -> None:
        """It is answered."""
        del self._pending[frame.sequence]


def _kept(frames: Iterable[Frame], ended: list[Frame]) -> list[Frame]:
    """Returns the frames besides changes that the next stream must have; the others go to `ended`."""
    kept: list[Frame] = []
    for frame in frames:
        if not frame.keeps_sequence:
            frame.sequence = 0
            (kept if frame.stream_ended() else ended).append(frame)
    return kept
