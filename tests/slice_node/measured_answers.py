"""Answers of each kind, small and large, that wait because their session does not read. As a program it prints what
each takes, measured, and what it is charged; with PYTHONMALLOC=malloc the C library counts all of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from shoal_contract.errors import Conflict
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.answer_room import AnswerRoom
from shoal_slice_node.adapters.answers import Answers
from shoal_slice_node.adapters.limits import LARGE_ANSWER_BYTES
from shoal_slice_node.core.dispatch.pulling import PullAnswer

from .measured_frames import used_bytes

COPIES = 500
MANY = 1000
ANSWER = wire.Answer.DESCRIPTOR
KINDS = ["error", *(field.name for field in ANSWER.oneofs_by_name["answer"].fields), "consumed", "nothing"]
RESERVED = ("pulled", "description")
"""The kinds of answers for which room is reserved."""


def answer_of(kind: str, count: int) -> wire.Answer:
    """Returns an answer with so many parts, which takes many times its bytes as a message."""
    answer = wire.Answer(sequence=70_000)
    if kind == "error":
        answer.error.CopyFrom(Conflict("x" * 20 * count, subject="queue").to_wire())
    elif kind == "outcome":
        answer.outcome = bytes(20 * count)
    elif kind == "attached":
        answer.attached.lives.extend(range(3000, 3000 + count))
        answer.attached.absent.extend(range(count))
    elif kind == "pulled":
        for number in range(count):
            answer.pulled.deliveries.add(key=b"k", first=number, low=number, to=number + 1, chunk=b"\0")
    elif kind == "description":
        for number in range(count):
            answer.description.queues.add(queue=b"%d" % number)
    elif kind == "unacked":
        answer.unacked.places.extend(range(count))
    elif kind == "consumed":
        answer.consumed.extend([0] * count)
    else:
        assert kind == "nothing", f"{kind}: a new kind of answer needs one here"
    return answer


def measure(kind: str, count: int, copies: int) -> tuple[int, int]:
    """Returns the bytes that an answer takes, and those that it is charged."""
    room = AnswerRoom(10 * COPIES * LARGE_ANSWER_BYTES)
    answers = Answers(room, lambda: None)

    def add() -> None:
        """Adds one as a session's work does it: with what the callbacks of its frame keep."""
        take: Callable[[wire.Answer], None] = lambda answer: answers.add(answer, 1)  # noqa: E731
        if kind in RESERVED:
            take, keep = answers.large(1, PullAnswer().left)
            room.reserve(keep, "session", LARGE_ANSWER_BYTES)
        if kind == "unacked":
            answers.add_prepared(answers.prepare(answer_of(kind, count)), 1)
        else:
            take(answer_of(kind, count))

    add()
    before, charged = used_bytes(), room.share.used_bytes
    for _ in range(copies):
        add()
    return (used_bytes() - before) // copies, (room.share.used_bytes - charged) // copies


if __name__ == "__main__":
    found = {f"{kind} of {count}": measure(kind, count, COPIES) for kind in KINDS for count in (1, MANY)}
    sys.stdout.write(json.dumps(found))
