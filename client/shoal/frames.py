"""Frames of a session other than changes: detach, acks, pull, describe; and what every frame has.

A frame is numbered when it is sent and leaves when it is answered. After a lost stream a change is sent again with its
number, which the slice knows; everything else belongs to the lost session and gets a new number, or is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from shoal.limits import REQUEST_OVERHEAD_BYTES
from shoal.waiting import fail_waiter
from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire


class Frame:
    """`sequence` 0: not sent yet. `deadline`: event loop time of the first waiter's deadline."""

    __slots__ = ("deadline", "sequence")
    keeps_sequence: ClassVar[bool] = False
    """Sent again as it was after a lost stream."""
    cost_bytes: int

    def __init__(self) -> None:
        self.sequence = 0
        self.deadline = float("inf")

    def fill(self, request: wire.SessionRequest) -> bool:
        """Writes itself into a session request; False: it need not be sent any more."""
        raise NotImplementedError

    def answered(self, answer: wire.Answer) -> None:
        raise NotImplementedError

    def failed(self, error: ShoalError) -> None:
        """Refused as a whole, or given up."""
        raise NotImplementedError

    def stream_ended(self) -> bool:
        """Its stream was lost before the answer: whether it must be sent on the next one, with a new number."""
        return True

    def expire(self, now: float, error: ShoalError) -> None:
        """Fails who waits beyond their deadline."""


Question = wire.Detach | wire.Pull | wire.Describe


class QuestionFrame(Frame):
    """One detach, pull or describe, and its one waiter, who gets the answer. Takes `cost_bytes` of the room."""

    __slots__ = ("_question", "cost_bytes", "future")

    def __init__(self, question: Question, deadline: float) -> None:
        super().__init__()
        self.deadline = deadline
        self.cost_bytes = question.ByteSize() + REQUEST_OVERHEAD_BYTES
        self.future: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()
        self._question = question

    def fill(self, request: wire.SessionRequest) -> bool:
        match self._question:
            case wire.Detach() as detach:
                request.detach.CopyFrom(detach)
            case wire.Pull() as pull:
                request.pull.CopyFrom(pull)
            case wire.Describe() as describe:
                request.describe.CopyFrom(describe)
        return not self.future.done()

    def answered(self, answer: wire.Answer) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def failed(self, error: ShoalError) -> None:
        fail_waiter(self.future, error)

    def expire(self, now: float, error: ShoalError) -> None:
        if now >= self.deadline:
            self.failed(error)
            self.deadline = float("inf")


class DetachFrame(QuestionFrame):
    """What it asks for is also done by the end of the stream."""

    __slots__ = ()

    def stream_ended(self) -> bool:
        self.answered(wire.Answer())
        return False


class AcksFrame(Frame):
    """Acks; `done` is called once, when the slice has them or they are given up."""

    __slots__ = ("_acks", "_done", "cost_bytes")

    def __init__(self, acks: list[wire.Ack], done: Callable[[ShoalError | None], None]) -> None:
        super().__init__()
        self.cost_bytes = 0
        self._acks = acks
        self._done = done

    def fill(self, request: wire.SessionRequest) -> bool:
        request.acks.acks.extend(self._acks)
        return True

    def answered(self, answer: wire.Answer) -> None:
        self._done(None)

    def failed(self, error: ShoalError) -> None:
        self._done(error)
