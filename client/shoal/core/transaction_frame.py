"""Carries a transaction: one Change that the slice does whole or refuses whole, and the acks that stand in it.

Not here: which requests it has, and what a refusal means (../transactions.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.core.acks import LIFE_BYTES
from shoal.core.gather import ChangeFrame
from shoal.core.requests import Columns, Request
from shoal.core.waiters import Waiter, fail_waiter
from shoal_contract.errors import Malformed, ShoalError
from shoal_contract.wire import slice_pb2 as wire


class AckRequest(Request):
    """Acks offsets first <= offset < end of a key for a queue, as a part of a change. No call waits for it alone.
    `life`: the queue's, of which they are; 0: whichever it has."""

    __slots__ = ("_end", "_first", "_key", "_life", "_queue")
    verb = "ack"

    def __init__(self, queue: bytes, key: bytes, first: int, end: int, deadline: float, life: int = 0) -> None:
        super().__init__((AckRequest, life != 0), 1, len(queue) + len(key) + 16 + LIFE_BYTES, deadline)
        self._life = life
        self._queue = queue
        self._key = key
        self._first = first
        self._end = end

    @property
    def alive(self) -> bool:
        return True

    def begin(self, step: wire.Step) -> Columns:
        step.acks.SetInParent()
        acks = step.acks
        return acks.queues, acks.keys, acks.lows, acks.tos, *((acks.lives,) if self._life else ())

    def put(self, columns: Columns) -> None:
        values = self._queue, self._key, self._first, self._end, *((self._life,) if self._life else ())
        for column, value in zip(columns, values, strict=True):
            column.append(value)

    def done(self, outcome: wire.StepOutcome, position: int, consumed: Iterator[int]) -> None:
        pass

    def fail(self, error: ShoalError) -> None:
        pass


class TransactionFrame(ChangeFrame):
    """Carries the requests of a transaction, and no other. Each gives its answer to its own waiter before `waiter` has
    None; a refusal, or the deadline, fails `waiter` alone. It is not sent any more once `waiter` is done."""

    __slots__ = ("_waiter",)
    atomic = True

    def __init__(self, requests: Sequence[Request], deadline: float, waiter: Waiter[None]) -> None:
        """Raises protobuf's error if a request cannot be written."""
        super().__init__(_never)
        self._waiter = waiter
        for request in requests:
            self.add(request)
        self.deadline = deadline

    def fits(self, request: Request) -> bool:
        return False

    def fill(self, request: wire.SessionRequest) -> bool:
        if self._payload is None:
            if self._waiter.done():
                return False
            self._serialize()
        request.change = self._payload or b""
        return True

    def answered(self, answer: wire.Answer) -> None:
        if self._waiter.done():
            return
        if any(step.refusals for step in wire.Outcome.FromString(answer.outcome).steps):
            raise Malformed("the slice did a part of a transaction: its version does not know them", subject="slice")
        super().answered(answer)
        self._waiter.set_result(None)

    def failed(self, error: ShoalError) -> None:
        fail_waiter(self._waiter, error)

    def expire(self, now: float, error: ShoalError) -> None:
        if now >= self.deadline:
            self.failed(error)
            self.deadline = float("inf")


def _never(request: Request, error: ShoalError) -> None:
    raise AssertionError("a transaction is refused as a whole")
