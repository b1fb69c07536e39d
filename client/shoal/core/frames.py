"""Defines frames of a session: what every frame has, and those that are not changes: detach, acks, nacks, doubts,
pull, probe.

A frame gets its number when it is sent, and is removed when it is answered. After a lost stream, a change is sent again
with its number, which the slice knows. Every other frame belongs to the lost session: it gets a new number, or ends.
Not here: attaches (../attachments.py), changes (gather.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from shoal.core.waiters import Waiter, fail_waiter
from shoal.limits import REQUEST_OVERHEAD_BYTES
from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire


class Frame(ABC):
    """Is one frame to a slice. `sequence` 0: not sent yet. `deadline`: the first waiter's, in event loop time. `over`:
    it was answered or given up."""

    __slots__ = ("deadline", "over", "sequence")
    keeps_sequence: ClassVar[bool] = False
    """True if the frame is sent again unchanged after a lost stream."""
    awaited: ClassVar[bool] = True
    """True if a flush waits for the answer."""
    cost_bytes: int

    def __init__(self) -> None:
        self.sequence = 0
        self.deadline = float("inf")
        self.over = False

    @abstractmethod
    def fill(self, request: wire.SessionRequest) -> bool:
        """Writes the frame into a session request. Returns False if it need not be sent any more."""

    @abstractmethod
    def answered(self, answer: wire.Answer) -> None:
        """Takes the slice's answer, which is not a refusal of the whole frame."""

    @abstractmethod
    def failed(self, error: ShoalError) -> None:
        """Fails the waiters: the frame was refused as a whole, or given up."""

    def stream_ended(self) -> bool:
        """Is called when the stream is lost before the answer, or before the frame was sent. Returns whether the next
        stream must have the frame."""
        return True

    def expire(self, now: float, error: ShoalError) -> None:  # noqa: B027 - some have no waiters
        """Fails the waiters beyond their deadline."""


Question = wire.Detach | wire.Pull


class QuestionFrame(Frame):
    """Carries one detach or pull, with one waiter for the answer. Takes `cost_bytes` of the room."""

    __slots__ = ("_question", "_waiter", "cost_bytes")

    def __init__(self, question: Question, deadline: float, waiter: Waiter[wire.Answer]) -> None:
        super().__init__()
        self.deadline = deadline
        self.cost_bytes = question.ByteSize() + REQUEST_OVERHEAD_BYTES
        self._question = question
        self._waiter = waiter

    def fill(self, request: wire.SessionRequest) -> bool:
        match self._question:
            case wire.Detach() as detach:
                request.detach.CopyFrom(detach)
            case wire.Pull() as pull:
                request.pull.CopyFrom(pull)
        return not self._waiter.done()

    def answered(self, answer: wire.Answer) -> None:
        if not self._waiter.done():
            self._waiter.set_result(answer)

    def failed(self, error: ShoalError) -> None:
        fail_waiter(self._waiter, error)

    def expire(self, now: float, error: ShoalError) -> None:
        if now >= self.deadline:
            self.failed(error)
            self.deadline = float("inf")


class ProbeFrame(Frame):
    """Asks for nothing, so that the slice answers: it is back. Ends with its stream."""

    __slots__ = ("cost_bytes",)
    awaited = False

    def __init__(self) -> None:
        super().__init__()
        self.cost_bytes = 0

    def fill(self, request: wire.SessionRequest) -> bool:
        request.describe.SetInParent()
        return True

    def answered(self, answer: wire.Answer) -> None:
        pass

    def failed(self, error: ShoalError) -> None:
        pass

    def stream_ended(self) -> bool:
        return False


class PullFrame(QuestionFrame):
    """Carries a pull. `on_answer` gets the answer even if its caller has left, as what it brings must be given back.
    `waiter`: is failed where there is none."""

    __slots__ = ("_on_answer",)

    def __init__(
        self,
        pull: wire.Pull,
        deadline: float,
        waiter: Waiter[Any],
        on_answer: Callable[[wire.Answer], None],
    ) -> None:
        super().__init__(pull, deadline, waiter)
        self._on_answer = on_answer

    def answered(self, answer: wire.Answer) -> None:
        self._on_answer(answer)


class DetachFrame(QuestionFrame):
    """Carries a detach. It is sent even if its caller has left: a handle that stayed attached would hold messages for
    nothing. The end of the stream detaches too. It takes no room: handles are bounded by what was attached."""

    __slots__ = ()

    def __init__(self, detach: wire.Detach, waiter: Waiter[wire.Answer]) -> None:
        super().__init__(detach, float("inf"), waiter)
        self.cost_bytes = 0

    def fill(self, request: wire.SessionRequest) -> bool:
        super().fill(request)
        return True

    def stream_ended(self) -> bool:
        self.answered(wire.Answer())
        return False


class AcksFrame(Frame):
    """Carries acks. `done` is called once, when the slice has them, with the places of those whose messages are unacked
    all the same, if it was asked (`Unacked` of the contract); or when it refuses them. `of_stream`: they name handles,
    which mean nothing on the next stream; their sender decides what to do with them then (ack_sender.py). `asks`: says
    whether the slice is asked. `resets_seen`: as in the contract's `Acks`."""

    __slots__ = ("_acks", "_asks", "_done", "_of_stream", "_resets_seen", "cost_bytes")

    def __init__(
        self,
        acks: list[wire.Ack],
        done: Callable[[ShoalError | None, Sequence[int]], None],
        of_stream: bool,
        asks: Callable[[], bool],
        resets_seen: int | None,
    ) -> None:
        super().__init__()
        self._asks = asks
        self._resets_seen = resets_seen
        self.cost_bytes = 0
        self._acks = acks
        self._done = done
        self._of_stream = of_stream

    def fill(self, request: wire.SessionRequest) -> bool:
        request.acks.acks.extend(self._acks)
        request.acks.tell_unacked = self._asks()
        if self._resets_seen is not None:
            request.acks.resets_seen = self._resets_seen
        return True

    def answered(self, answer: wire.Answer) -> None:
        self._done(None, answer.unacked.places)

    def failed(self, error: ShoalError) -> None:
        self._done(error, ())

    def stream_ended(self) -> bool:
        return not self._of_stream


class NacksFrame(Frame):
    """Carries nacks. `delay_ms` None: no program was given the messages. `number`: that of the first consumer; 0: they
    have none. `stop`: handles that are to get nothing more. `done` is called once, when the slice
    has them or refuses them. They mean nothing on the next stream. `resets_seen`: as in the contract's `Acks`."""

    __slots__ = ("_delay_ms", "_done", "_nacks", "_number", "_resets_seen", "_stop", "cost_bytes")

    def __init__(
        self,
        nacks: list[wire.Ack],
        delay_ms: int | None,
        done: Callable[[ShoalError | None], None],
        stop: Sequence[int],
        number: int,
        resets_seen: int | None,
    ) -> None:
        super().__init__()
        self.cost_bytes = 0
        self._resets_seen = resets_seen
        self._number = number
        self._nacks = nacks
        self._stop = stop
        self._delay_ms = delay_ms
        self._done = done

    def fill(self, request: wire.SessionRequest) -> bool:
        request.nacks.messages.extend(self._nacks)
        if self._delay_ms is None:
            request.nacks.unseen = True
            request.nacks.number = self._number
        else:
            request.nacks.delay_ms = self._delay_ms
        request.nacks.stop.extend(self._stop)
        if self._resets_seen is not None:
            request.nacks.resets_seen = self._resets_seen
        return True

    def answered(self, answer: wire.Answer) -> None:
        self._done(None)

    def failed(self, error: ShoalError) -> None:
        self._done(error)

    def stream_ended(self) -> bool:
        return False


class DoubtsFrame(Frame):
    """Carries acks that had no effect, as far as known, and asks which of their messages are still unacked.
    `of_lost_stream`: they are to be taken wherever their messages are; else where this session was given them again.
    `on_answer`: called with their places (`Unacked` of the contract); with None if the slice, of an older version, does
    not tell. `waiter`: has None then, or when the stream is lost. `resets_seen`: as in the contract's `Acks`."""

    __slots__ = ("_acks", "_of_lost_stream", "_on_answer", "_resets_seen", "_waiter", "cost_bytes")

    def __init__(
        self,
        acks: list[wire.Ack],
        on_answer: Callable[[Sequence[int] | None], None],
        waiter: Waiter[None],
        resets_seen: int,
        of_lost_stream: bool,
    ) -> None:
        super().__init__()
        self.cost_bytes = 0
        self._of_lost_stream = of_lost_stream
        self._acks = acks
        self._on_answer = on_answer
        self._resets_seen = resets_seen
        self._waiter = waiter

    def fill(self, request: wire.SessionRequest) -> bool:
        request.acks.acks.extend(self._acks)
        request.acks.tell_unacked = True
        request.acks.of_lost_stream = self._of_lost_stream
        request.acks.resets_seen = self._resets_seen
        return not self._waiter.done()

    def answered(self, answer: wire.Answer) -> None:
        self._on_answer(answer.unacked.places if answer.HasField("unacked") else None)
        self._end()

    def failed(self, error: ShoalError) -> None:
        fail_waiter(self._waiter, error)

    def stream_ended(self) -> bool:
        self._end()
        return False

    def _end(self) -> None:
        if not self._waiter.done():
            self._waiter.set_result(None)
