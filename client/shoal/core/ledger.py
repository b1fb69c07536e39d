"""Keeps the frames of one session, from waiting to answered: which is sent next, its number, and which are sent again.

Not here: streams (../slice_session.py), what frames mean (frames.py, gather.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from shoal.core.frames import Frame
from shoal.core.gather import ChangeFrame, Gather, Rerouted
from shoal.core.requests import Request
from shoal.limits import FRAMES_BEFORE_CHANGE_MAX, FRAMES_IN_FLIGHT_MAX
from shoal_contract.wire import slice_pb2 as wire


class Ledger:
    """Numbers frames 1, 2, 3 ... over all streams. Numbers sent on one stream ascend."""

    def __init__(self, reroute: Rerouted) -> None:
        self._sequence = 0
        """The last number given."""
        self._pending: dict[int, Frame] = {}
        """Number -> frame sent on this stream and unanswered, ascending. At most FRAMES_IN_FLIGHT_MAX."""
        self._again: deque[Frame] = deque()
        """Unanswered changes of earlier streams, ascending, with numbers above those in `_pending`. They come from
        `_pending`, so they have its bound."""
        self._first: deque[Frame] = deque()
        """Frames that this stream begins with after `_again`: attaches, and unanswered questions of earlier streams."""
        self._waiting: deque[Frame] = deque()
        """Frames not sent yet, except changes. Each is a waiting call of the application, an attach, or a flush of
        acks."""
        self._gather = Gather(reroute)
        self._unawaited: set[Frame] = set()
        """Those of all these frames for whose answers a flush does not wait."""
        self._passed = 0
        """How many of `_waiting` were sent before the first gathered change, since one was sent."""

    def __len__(self) -> int:
        """Returns how many frames are not answered."""
        not_gathered = len(self._pending) + len(self._again) + len(self._first) + len(self._waiting)
        return not_gathered + len(self._gather)

    @property
    def awaited(self) -> bool:
        """Returns whether a flush waits for the answer to some frame."""
        return len(self) > len(self._unawaited)

    @property
    def in_flight(self) -> int:
        """Returns the number of frames that were sent on this stream and are unanswered."""
        return len(self._pending)

    def add_request(self, request: Request) -> Frame | None:
        """Adds a request. Returns the frame if this request began it. Raises an error for a request that cannot be
        written; nothing is added then."""
        return self._gather.add(request)

    def add_change(self, frame: ChangeFrame) -> None:
        """Adds a whole change, which is sent in its turn among the gathered ones."""
        self._gather.add_frame(frame)

    def add_frame(self, frame: Frame) -> None:
        """Adds a frame that is not a change; it is sent before changes that were not sent yet. A change lets
        FRAMES_BEFORE_CHANGE_MAX pass: a program may have questions without end."""
        self._waiting.append(frame)
        if not frame.awaited:
            self._unawaited.add(frame)

    def caller_left(self, frame: Frame) -> None:
        """Records that nothing waits for the answer to a frame that was added."""
        if not frame.over:
            self._unawaited.add(frame)

    def over(self, frame: Frame) -> None:
        """Records that a frame is answered or given up: it is not among these any more, or never was."""
        frame.over = True
        self._unawaited.discard(frame)

    def frames(self) -> list[Frame]:
        """Returns all unanswered frames."""
        return [*self._pending.values(), *self._again, *self._first, *self._waiting, *self._gather.waiting()]

    def clear(self) -> list[Frame]:
        """Gives up all unanswered frames, and returns them."""
        frames = self.frames()
        self._pending.clear()
        for waiting in (self._again, self._first, self._waiting):
            waiting.clear()
        while self._gather:
            self._gather.take()
        return frames

    def end_stream(self) -> list[Frame]:
        """Ends a lost stream: keeps the frames that the next one must have. Returns the frames that ended with it."""
        unanswered = [*self._pending.values(), *self._again]
        self._pending.clear()
        self._again = deque(frame for frame in unanswered if frame.keeps_sequence)
        ended: list[Frame] = []
        self._first = deque(_kept((*unanswered, *self._first), ended))
        self._waiting = deque(_kept(self._waiting, ended))
        return ended

    def begin_stream(self, first_frames: Iterable[Frame]) -> None:
        """Begins a stream: sends unanswered changes again, then `first_frames`, then the other unanswered frames."""
        self._first.extendleft(reversed(list(first_frames)))

    def take(self) -> Frame | None:
        """Takes the frame to send now; None if there is none, or if too many are unanswered."""
        if self._again:
            return self._again.popleft()
        if len(self._pending) >= FRAMES_IN_FLIGHT_MAX:
            return None
        if self._first:
            return self._first.popleft()
        if self._waiting and not (self._gather and self._passed >= FRAMES_BEFORE_CHANGE_MAX):
            self._passed += 1
            return self._waiting.popleft()
        self._passed = 0
        return self._gather.take() if self._gather else None

    def numbered(self, frame: Frame) -> wire.SessionRequest | None:
        """Returns the session request of a frame that was taken, and counts the frame as unanswered. Returns None if
        nothing needs the frame any more."""
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
        """Returns the unanswered frame of this number; None if it was answered on an earlier stream, or numbered anew
        since."""
        return self._pending.get(sequence)

    def settle(self, frame: Frame) -> None:
        """Removes a frame that is answered."""
        del self._pending[frame.sequence]


def _kept(frames: Iterable[Frame], ended: list[Frame]) -> list[Frame]:
    """Returns the frames, except changes, that the next stream must have; adds the others to `ended`."""
    kept: list[Frame] = []
    for frame in frames:
        if not frame.keeps_sequence:
            frame.sequence = 0
            (kept if frame.stream_ended() else ended).append(frame)
    return kept
