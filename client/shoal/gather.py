"""Gathers requests to one slice into Change frames, and hands each its part of the answer. Pure: no awaits, no clock.

Requests keep their order: equal ones in a row share a step, a different one begins the next. A request is written into
its step when it is added, so one that cannot be written is refused there; what is sent later is bytes. A frame in
gathering is full at GATHER_BYTES_MAX or GATHER_OPERATIONS_MAX; then the next begins. `Room` bounds how much may wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat

from shoal.frames import Frame
from shoal.limits import GATHER_BYTES_MAX, GATHER_OPERATIONS_MAX
from shoal.publish_requests import PublishRequest, PublishSingles
from shoal.requests import Request, StepKind
from shoal_contract.errors import MapOrLeaderChanged, ShoalError, from_wire
from shoal_contract.wire import slice_pb2 as wire

Rerouted = Callable[[PublishRequest, ShoalError], None]


@dataclass(slots=True)
class GatheredStep:
    """One step of the change, with its requests in order of its columns."""

    kind: StepKind
    requests: list[Request]
    step: wire.Step


class ChangeFrame(Frame):
    """The requests of one Change, in order; keeps its sequence over reconnects."""

    __slots__ = ("_payload", "_reroute", "cost_bytes", "operations", "steps")
    keeps_sequence = True

    def __init__(self, reroute: Rerouted) -> None:
        super().__init__()
        self.steps: list[GatheredStep] = []
        self.operations = 0
        self.cost_bytes = 0
        self._payload: bytes | None = None
        self._reroute = reroute

    def fits(self, request: Request) -> bool:
        return not self.steps or (
            self.cost_bytes + request.cost_bytes <= GATHER_BYTES_MAX
            and self.operations + request.operations <= GATHER_OPERATIONS_MAX
        )

    def add(self, request: Request) -> None:
        """Raises what protobuf raises for a request that cannot be written; the frame is then as it was."""
        last = self.steps[-1] if self.steps else None
        joined = last is not None and last.kind == request.kind
        if not joined or last is None:
            last = GatheredStep(request.kind, [], request.new_step())
        elif (
            isinstance(request, PublishSingles)
            and isinstance(before := last.requests[-1], PublishSingles)
            and before.takes(request)
        ):
            before.take(request)
            self._count(request, 0)
            return
        self._put(request, last)
        if not joined:
            self.steps.append(last)
        self._count(request, request.operations)

    def _put(self, request: Request, gathered: GatheredStep) -> None:
        try:
            request.put(gathered.step)
        except BaseException:
            _rewrite(gathered)
            raise
        gathered.requests.append(request)

    def _count(self, request: Request, operations: int) -> None:
        self.cost_bytes += request.cost_bytes
        self.operations += operations
        if request.deadline < self.deadline:
            self.deadline = request.deadline

    def fill(self, request: wire.SessionRequest) -> bool:
        """Writes itself into a session request; False if nothing waits for it any more and it was never sent."""
        if self._payload is None:
            for gathered in self.steps:
                alive = [each for each in gathered.requests if each.alive]
                if len(alive) != len(gathered.requests):
                    gathered.requests = alive
                    _rewrite(gathered)
                for each in alive:
                    each.finish(gathered.step)
            self.steps = [gathered for gathered in self.steps if gathered.requests]
            self._payload = wire.Change(steps=[gathered.step for gathered in self.steps]).SerializeToString()
        request.change = self._payload
        return bool(self.steps)

    def answered(self, answer: wire.Answer) -> None:
        """Raises DecodeError, ValueError, IndexError for an outcome that does not fit."""
        outcome = wire.Outcome.FromString(answer.outcome)
        live = iter(answer.live) if answer.live else repeat(0)
        for gathered, step in zip(self.steps, outcome.steps, strict=True):
            refused = {refusal.request: from_wire(refusal.error) for refusal in step.refusals}
            position = 0
            for index, request in enumerate(gathered.requests):
                if index in refused:
                    self._refuse(request, refused[index])
                    if isinstance(request, PublishRequest):
                        next(live, 0)
                else:
                    request.done(step, position, live)
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


def _rewrite(gathered: GatheredStep) -> None:
    """Writes the step anew, of its requests: each was written before, so that it can be."""
    if gathered.requests:
        gathered.step = gathered.requests[0].new_step()
        for request in gathered.requests:
            request.put(gathered.step)


class Gather:
    """Frames in gathering for one slice, oldest first."""

    def __init__(self, reroute: Rerouted) -> None:
        self._frames: deque[ChangeFrame] = deque()
        self._reroute = reroute

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, request: Request) -> ChangeFrame | None:
        """Returns the frame if this request began it. Raises what cannot be written; nothing is added then."""
        frames = self._frames
        if frames and frames[-1].fits(request):
            frames[-1].add(request)
            return None
        frame = ChangeFrame(self._reroute)
        frame.add(request)
        frames.append(frame)
        return frame

    def take(self) -> ChangeFrame:
        """Returns the oldest frame, closed."""
        return self._frames.popleft()

    def waiting(self) -> list[ChangeFrame]:
        return list(self._frames)
