"""Keeps what a transaction has taken: its steps, their results, and whether one frame can have all of them.

Not here: which slice they go to, and the commit (transactions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from shoal.core.offset_ranges import Ranges
from shoal.core.requests import Request
from shoal.core.transaction_frame import AckRequest
from shoal.limits import GATHER_OPERATIONS_MAX, REQUEST_OVERHEAD_BYTES, TRANSACTION_BYTES_MAX
from shoal.messages import PartLife
from shoal_contract.errors import TooLarge

Value = TypeVar("Value")
_NOTHING: Final[Any] = object()


class TransactionResult(Generic[Value]):
    """Is what a step of a transaction answered, once the transaction is committed."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value: Value = _NOTHING

    @property
    def value(self) -> Value:
        """Returns the answer: a receipt, an offset, or key -> offset. Raises RuntimeError before the commit, and where
        there was none."""
        if self._value is _NOTHING:
            raise RuntimeError("the transaction is not committed: its results are there after its block")
        return self._value

    def take(self, value: Value) -> None:
        """Takes the answer, from the transaction."""
        self._value = value

    def __repr__(self) -> str:
        return "TransactionResult(not committed)" if self._value is _NOTHING else f"TransactionResult({self._value!r})"


class Slot:
    """Waits for one request's answer in one attempt. See core.waiters.Waiter."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: Any = None

    def done(self) -> bool:
        """Returns False: each attempt waits for its answer."""
        return False

    def set_result(self, result: Any, /) -> None:
        """Takes the answer."""
        self.answer = result

    def set_exception(self, exception: BaseException, /) -> None:
        """Does nothing: the error of an attempt goes to the waiter of the whole frame."""


class Step(NamedTuple):
    """Describes one step. `make(deadline, slot)`: returns its request for one attempt. `keys`: those that must lie on
    the slice, each with what it is. `queue`: the queue whose part must be there. `take`: takes the slot's answer."""

    make: Callable[[float, Slot], Request]
    keys: Sequence[tuple[bytes, str]]
    queue: bytes | None = None
    take: Callable[[Any], None] = lambda answer: None


class Acks(NamedTuple):
    """Gathers acks that stand in a row: (queue, its life, key) -> ranges of offsets."""

    ranges: dict[tuple[bytes, PartLife, bytes], Ranges]


def ack_requests(acks: Acks, slice_name: str, deadline: float) -> Iterator[Request]:
    """Yields one request for each range. A life means nothing at another slice than its own."""
    for (queue, part, key), ranges in acks.ranges.items():
        life = part.life if part.slice_name == slice_name else 0
        for first, end in ranges:
            yield AckRequest(queue, key, first, end, deadline, life)


class StepRoom:
    """Counts the names and bytes of the steps taken so far, so that one that is too much is refused when it comes, and
    not after all of them were made. Acks are not counted: ranges may still merge."""

    def __init__(self) -> None:
        self._operations = 0
        self._size_bytes = 0

    def check_names(self, count: int) -> None:
        """Raises TooLarge if there is no room for `count` names more."""
        _check(self._operations + count, 0)

    def take(self, requests: Sequence[Request]) -> None:
        """Counts the requests of a step. Raises TooLarge, and counts nothing."""
        operations, size_bytes = _measured(requests)
        _check(self._operations + operations, self._size_bytes + size_bytes)
        self._operations += operations
        self._size_bytes += size_bytes


def check_bounds(requests: Sequence[Request]) -> None:
    """Raises TooLarge for more than one frame takes."""
    _check(*_measured(requests))


def _measured(requests: Sequence[Request]) -> tuple[int, int]:
    """Returns (keys and queues, bytes) of requests."""
    size_bytes = sum(request.cost_bytes - REQUEST_OVERHEAD_BYTES for request in requests)
    return sum(request.operations for request in requests), size_bytes


def _check(operations: int, size_bytes: int) -> None:
    for what, found, limit in (
        ("keys and queues of a transaction", operations, GATHER_OPERATIONS_MAX),
        ("bytes of a transaction", size_bytes, TRANSACTION_BYTES_MAX),
    ):
        if found > limit:
            raise TooLarge(f"{what}: {found}; the limit is {limit}", subject=what, limit=limit, value=found)
