"""Gathers requests to one slice into Change frames, and gives each its part of the answer.

Live publishes have frames of their own. Requests
keep their order: requests of one kind in a row share a step, and one of another kind begins the next step. A
request is written into its step when it is added, so one that cannot be written is refused there; what is sent later is
bytes. A gathering frame is full at GATHER_BYTES_MAX or GATHER_OPERATIONS_MAX; then the next frame begins. `Room` bounds
how much may wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar

from shoal.core.frames import Frame
from shoal.core.publish_requests import PublishRequest, PublishSingles
from shoal.core.requests import Columns, DropsRequest, Request, StepKind
from shoal.limits import GATHER_BYTES_MAX, GATHER_OPERATIONS_MAX
from shoal_contract.errors import MapOrLeaderChanged, ShoalError, Unavailable, from_wire
from shoal_contract.wire import slice_pb2 as wire

Rerouted = Callable[[PublishRequest, ShoalError], None]


@dataclass(slots=True)
class GatheredStep:
    """Keeps one step of the change, with its requests in the order of its columns."""

    kind: StepKind
    requests: list[Request]
    step: wire.Step
    """The step in the frame's change."""
    columns: Columns


class ChangeFrame(Frame):
    """Carries the requests of one Change, in order. It keeps its number over all streams."""

    __slots__ = ("_change", "_payload", "_reroute", "cost_bytes", "operations", "steps")
    keeps_sequence = True
    atomic: ClassVar[bool] = False
    """True if the slice is to do all requests or none."""

    def __init__(self, reroute: Rerouted) -> None:
        super().__init__()
        self.steps: list[GatheredStep] = []
        self.operations = 0
        self.cost_bytes = 0
        self._change = wire.Change()
        self._payload: bytes | None = None
        self._reroute = reroute

    def fits(self, request: Request) -> bool:
        """Returns whether the frame has room for the request. An empty frame has, whatever its size."""
        return not self.steps or (
            request.live is not self.keeps_sequence
            and self.cost_bytes + request.cost_bytes <= GATHER_BYTES_MAX
            and self.operations + request.counted <= GATHER_OPERATIONS_MAX
        )

    def add(self, request: Request) -> None:
        """Adds a request. Raises protobuf's error if it cannot be written; the frame is then as it was."""
        last = self.steps[-1] if self.steps else None
        try:
            if last is None or last.kind != request.kind:
                step = self._change.steps.add()
                columns = request.begin(step)
                request.put(columns)
                self.steps.append(GatheredStep(request.kind, [request], step, columns))
                self.operations += request.counted
            elif not (isinstance(request, PublishSingles) and _joined(last.requests[-1], request)):
                request.put(last.columns)
                last.requests.append(request)
                self.operations += request.counted
        except BaseException:
            self._write_again()
            raise
        self.cost_bytes += request.cost_bytes
        if request.deadline < self.deadline:
            self.deadline = request.deadline

    def _write_again(self) -> None:
        """Writes the change anew from its requests. Each was written before, so it can be written again."""
        self._change = wire.Change()
        for gathered in self.steps:
            gathered.step = self._change.steps.add()
            gathered.columns = gathered.requests[0].begin(gathered.step)
            for request in gathered.requests:
                request.put(gathered.columns)

    def fill(self, request: wire.SessionRequest) -> bool:
        """Writes the frame into a session request. Returns False if nothing waits for it and it was never sent."""
        if self._payload is None:
            if not all(request.alive for gathered in self.steps for request in gathered.requests):
                self._leave_out_the_dead()
            self._serialize()
        request.change = self._payload or b""
        return bool(self.steps)

    def _serialize(self) -> None:
        for gathered in self.steps:
            gathered.requests[0].finish(gathered.step, gathered.requests)
        self._change.atomic = self.atomic
        self._payload = self._change.SerializeToString()

    def _leave_out_the_dead(self) -> None:
        for gathered in self.steps:
            gathered.requests = [request for request in gathered.requests if request.alive]
        self.steps = [gathered for gathered in self.steps if gathered.requests]
        self._write_again()

    def answered(self, answer: wire.Answer) -> None:
        """Answers the requests. Raises DecodeError, ValueError, IndexError for an outcome that does not fit."""
        outcome = wire.Outcome.FromString(answer.outcome)
        consumed = iter(answer.consumed) if answer.consumed else repeat(0)
        for gathered, step in zip(self.steps, outcome.steps, strict=True):
            if isinstance(gathered.requests[0], DropsRequest):
                gathered.requests[0].done(step, 0, consumed)  # It is alone in its step, and reads its refusals itself.
                continue
            refused = {refusal.request: from_wire(refusal.error) for refusal in step.refusals}
            position = 0
            for index, request in enumerate(gathered.requests):
                if index in refused:
                    self._refuse(request, refused[index])
                    if isinstance(request, PublishRequest):
                        next(consumed, 0)
                else:
                    request.done(step, position, consumed)
                position += request.operations

    def failed(self, error: ShoalError) -> None:
        for gathered in self.steps:
            for request in gathered.requests:
                self._refuse(request, error)

    def expire(self, now: float, error: ShoalError) -> None:
        later = float("inf")
        for gathered in self.steps:
            for request in gathered.requests:
                request.expire(now, error)
                if request.deadline > now:
                    later = min(later, request.deadline)
        self.deadline = later

    def _refuse(self, request: Request, error: ShoalError) -> None:
        if isinstance(request, PublishRequest) and isinstance(error, MapOrLeaderChanged):
            self._reroute(request, error)
        else:
            request.fail(error)


class LiveFrame(ChangeFrame):
    """Carries live publishes only. It is sent once: a repeat could be delivered a second time."""

    __slots__ = ()
    keeps_sequence = False

    def stream_ended(self) -> bool:
        self.failed(
            Unavailable(
                "the stream was lost before a live publish was answered; it may have been delivered or not, and is not"
                " repeated",
                subject="live publish",
            )
        )
        return False


def _joined(last: Request, request: PublishSingles) -> bool:
    """Joins a single message to the chunk before it, if that may take it. Returns whether it did."""
    if not isinstance(last, PublishSingles) or not last.takes(request):
        return False
    last.take(request)
    return True


class Gather:
    """Keeps the gathering frames of one slice, oldest first."""

    def __init__(self, reroute: Rerouted) -> None:
        self._frames: deque[ChangeFrame] = deque()
        self._reroute = reroute

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, request: Request) -> ChangeFrame | None:
        """Adds a request. Returns the frame if this request began it. Raises an error for a request that cannot be
        written; nothing is added then."""
        frames = self._frames
        if frames and frames[-1].fits(request):
            frames[-1].add(request)
            return None
        frame = LiveFrame(self._reroute) if request.live else ChangeFrame(self._reroute)
        frame.add(request)
        frames.append(frame)
        return frame

    def add_frame(self, frame: ChangeFrame) -> None:
        """Adds a whole frame, behind all requests so far."""
        self._frames.append(frame)

    def take(self) -> ChangeFrame:
        """Removes and returns the oldest frame, which gathers no more."""
        return self._frames.popleft()

    def waiting(self) -> list[ChangeFrame]:
        """Returns the frames that gather, oldest first."""
        return list(self._frames)
