"""Gathers requests to one slice into Change frames, and hands each its part of the answer. Pure: no awaits, no clock.

Requests keep their order: equal ones in a row share a step, a different one begins the next. A frame in gathering is
full at GATHER_BYTES_MAX or GATHER_OPERATIONS_MAX; then the next begins. How much may wait is bounded by `Room`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import repeat

from shoal.frames import Frame
from shoal.limits import GATHER_BYTES_MAX, GATHER_OPERATIONS_MAX
from shoal.requests import PublishRequest, PublishSingles, Request, StepKind
from shoal_contract.errors import MapOrLeaderChanged, ShoalError, from_wire
from shoal_contract.wire import slice_pb2 as wire

Rerouted = Callable[[PublishRequest, ShoalError], None]


class ChangeFrame(Frame):
    """The requests of one Change, in order; keeps its sequence over reconnects."""

    __slots__ = ("_payload", "_reroute", "cost_bytes", "operations", "steps")
    keeps_sequence = True

    def __init__(self, reroute: Rerouted) -> None:
        super().__init__()
        self.steps: list[tuple[StepKind, list[Request]]] = []
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
        self.cost_bytes += request.cost_bytes
        self.deadline = min(self.deadline, request.deadline)
        if self.steps and self.steps[-1][0] == request.kind:
            requests = self.steps[-1][1]
            last = requests[-1]
            if isinstance(request, PublishSingles) and isinstance(last, PublishSingles) and last.takes(request):
                last.take(request)
                return
            requests.append(request)
        else:
            self.steps.append((request.kind, [request]))
        self.operations += request.operations

    def fill(self, request: wire.SessionRequest) -> bool:
        """Writes itself into a session request; False if nobody waits for it any more and it was never sent."""
        if self._payload is None:
            living = [(kind, [request for request in requests if request.alive]) for kind, requests in self.steps]
            self.steps = [(kind, requests) for kind, requests in living if requests]
            steps = [kind[0].encode(kind, requests) for kind, requests in self.steps]
            self._payload = wire.Change(steps=steps).SerializeToString()
        request.change = self._payload
        return bool(self.steps)

    def answered(self, answer: wire.Answer) -> None:
        """Raises DecodeError for an outcome that is none."""
        outcome = wire.Outcome.FromString(answer.outcome)
        live = iter(answer.live) if answer.live else repeat(0)
        for (_, requests), step in zip(self.steps, outcome.steps, strict=True):
            refused = {refusal.request: from_wire(refusal.error) for refusal in step.refusals}
            position = 0
            for index, request in enumerate(requests):
                if index in refused:
                    self._refuse(request, refused[index])
                    if isinstance(request, PublishRequest):
                        next(live, 0)
                else:
                    request.done(step, position, live)
                position += request.operations

    def failed(self, error: ShoalError) -> None:
        for _, requests in self.steps:
            for request in requests:
                self._refuse(request, error)

    def expire(self, now: float, error: ShoalError) -> None:
        later = float("inf")
        for _, requests in self.steps:
            for request in requests:
                request.expire(now, error)
                if request.deadline > now:
                    later = min(later, request.deadline)
        self.deadline = later

    def _refuse(self, request: Request, error: ShoalError) -> None:
        if isinstance(request, PublishRequest) and isinstance(error, MapOrLeaderChanged):
            self._reroute(request, error)
        else:
            request.fail(error)


class Gather:
    """Frames in gathering for one slice, oldest first."""

    def __init__(self, reroute: Rerouted) -> None:
        self._frames: deque[ChangeFrame] = deque()
        self._reroute = reroute

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, request: Request) -> None:
        if not self._frames or not self._frames[-1].fits(request):
            self._frames.append(ChangeFrame(self._reroute))
        self._frames[-1].add(request)

    def take(self) -> ChangeFrame:
        """The oldest frame, closed."""
        return self._frames.popleft()

    def waiting(self) -> list[ChangeFrame]:
        return list(self._frames)
