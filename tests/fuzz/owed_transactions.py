"""Models transactions and the acks in changes, over what owed.py models.

A transaction that is refused must leave the model as it is: every later check compares it with the slice.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from tests.fuzz.owed import (
    CONFLICT,
    EXHAUSTED,
    NO_SUCH_QUEUE,
    NOT_OWNER,
    OK,
    OUT_OF_RANGE,
    UNROUTABLE,
    Bounds,
    Codes,
    Life,
    Look,
    Owed,
    Told,
)

_REFUSED: Codes = {NO_SUCH_QUEUE, NOT_OWNER, CONFLICT, EXHAUSTED, OUT_OF_RANGE, UNROUTABLE}


class Transactions(Owed):
    """Models what is owed. `done` is called with the messages of a binding that a change acked."""

    def __init__(
        self, bounds: Bounds, look: Look, forgotten: Told, again: Told, done: Callable[[Life, bytes, set[int]], None]
    ) -> None:
        super().__init__(bounds, look, forgotten, again)
        self.done = done

    def changed(
        self, head: tuple[bytes, int, int], change: wire.Change, outcome: bytes | None, refused: ShoalError | None
    ) -> None:
        producer, sequence, settled = head
        last, answers = self.answers.get(producer, (0, {}))
        first_time = not any(producer) or sequence > last
        if first_time and change.atomic and refused is not None:
            self._record += 1
            self.brief = []
            assert refused.code in _REFUSED and outcome is None, f"a transaction is answered {refused}"
            if any(producer):
                kept = {number: given for number, given in answers.items() if number > settled}
                kept[sequence] = _remembered(refused)
                self.answers[producer] = sequence, dict(sorted(kept.items())[-self.bounds.answers :])
        elif not first_time and (expected := answers.get(sequence, b"")).startswith(_REFUSAL):
            assert refused is not None and _remembered(refused) == expected, f"frame {sequence} is answered otherwise"
        else:
            super().changed(head, change, outcome, refused)

    def _acks(self, step: wire.TransactionAcks, answer: wire.StepOutcome) -> None:
        columns = zip(step.queues, step.keys, step.lows, step.tos, strict=True)
        for number, (name, key, low, to) in enumerate(columns):
            life, offsets = self.lives.get(name), set(range(low, to))
            todo = {} if life is None else life.todo.get(key, {})
            allowed = self._refusals(name, [key])
            if not allowed:
                assert life is not None
                allowed = {OK} if offsets <= todo.keys() else {CONFLICT, OUT_OF_RANGE}
                if OK in allowed and self.done_ranges(life, key) >= self.bounds.done_ranges - 1:
                    allowed.add(EXHAUSTED)
            if self._each(answer, number, allowed, ("ack", name, key, low, to)) and life is not None:
                self.brief += [(life, key, offset) for offset in offsets if todo[offset] == self._record]
                for offset in offsets:
                    del todo[offset]
                life.acked.get(key, set()).difference_update(offsets)
                self.deliveries.settled(life.number, key, offsets)
                self.done(life, key, offsets)


_REFUSAL = b"refused "


def _remembered(error: ShoalError) -> bytes:
    return _REFUSAL + b"%d" % error.code
