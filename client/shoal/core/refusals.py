"""Makes the errors that several modules raise in the same words."""

from __future__ import annotations

from shoal_contract.errors import Conflict, DeadlineExceeded, Malformed, NoSuchQueue, Unavailable
from shoal_contract.names import show


def deadline_exceeded(what: str) -> DeadlineExceeded:
    """Returns the error of a call that had no answer in time. `what`: names the call, as "request to slice s01"."""
    return DeadlineExceeded(f"{what}: no answer before the call's deadline; the outcome is unknown", subject=what)


def no_newer_map(what: str, why: str) -> DeadlineExceeded:
    """Returns the error of a question that a slice refused until its deadline. `why`: as the slice said last."""
    return DeadlineExceeded(f"{what}: no newer map came before the call's deadline ({why})", subject=what)


def connection_closed() -> Unavailable:
    """Returns the error of a call that came after its connection was closed."""
    return Unavailable("the connection is closed; nothing of this call was sent; connect anew", subject="connection")


def connection_cut() -> Unavailable:
    """Returns the error of a call that was under way when its connection was closed."""
    return Unavailable("the connection was closed; the outcome of what was under way is unknown", subject="connection")


def left_inbox(queue: bytes) -> Conflict:
    """Returns the error of a transaction that acks a message of a queue that has left its inbox."""
    return Conflict(
        f"queue {show(queue)} has left the inbox since the message was given: it was detached, or another session"
        " took it over. The message is given again to its next consumer; this transaction does not ack it",
        subject=show(queue),
    )


def acks_late(slice_name: str, messages: int) -> Unavailable:
    """Returns the error of acks that came when their messages had been taken back, and could not come again here."""
    return Unavailable(
        f"up to {_acks(messages)} had no effect at slice {slice_name}: it had taken their messages back, at the"
        " ack timeouts of their queues or as they were nacked, and this inbox takes nothing more of these queues: the"
        " messages are given again, perhaps to others",
        subject=f"slice {slice_name}",
        value=messages,
    )


def acks_came_late(slice_name: str, messages: int) -> Unavailable:
    """Returns the error of acks that came after the ack timeout, where the messages have not come here again yet."""
    return Unavailable(
        f"up to {_acks(messages)} had no effect at slice {slice_name}: they came after the ack timeouts of their"
        " queues, when it had taken the messages back. They are given again: to others, or here, where they are acked"
        " again and not handed out. Ack sooner, or give the queue a longer ack timeout",
        subject=f"slice {slice_name}",
        value=messages,
    )


def acks_lacking(slice_names: str, messages: int) -> DeadlineExceeded:
    """Returns the error of a flush that ended at its deadline while these slices lacked acks of a lost stream.
    `messages`: how many of their messages may be unacked there."""
    what = f"acks at slice {slice_names}"
    return DeadlineExceeded(
        f"{what}: up to {_acks(messages)} of a lost connection could not be made up for before the call's deadline:"
        " another consumer may have nacked their messages with a delay; or the slice is of an older version, and such"
        " an ack counts only when its message has come here again, not while other messages fill the window or another"
        " consumer has it. Flush again, or take it that these messages come again",
        subject=what,
        value=messages,
    )


def acks_forgotten(slice_name: str, messages: int) -> Unavailable:
    """Returns the error of a flush that cannot tell of some acks whether the slice has them: those that were lost with
    a connection, sent after it for messages that were forgotten, or not sent as their queue's life is perhaps over."""
    what = f"acks at slice {slice_name}"
    return Unavailable(
        f"{what}: after a lost connection, {_acks(messages)} cannot be followed: their messages were too scattered or"
        " too many to be remembered, their queues were bound there after they were attached, or very much came before"
        " the slice told whether it has the same queues. It may have these acks or not (where the queue is perhaps"
        " another one, those given since were not sent), so their messages may come again, and are handed out then",
        subject=what,
        value=messages,
    )


def _acks(number: int) -> str:
    """Returns the number with its noun."""
    return "1 ack" if number == 1 else f"{number:,} acks"


def unreadable(slice_name: str, why: str) -> Malformed:
    """Returns the error of a slice's answer that is not what was asked for. `why`: what it has, or lacks."""
    return Malformed(f"an answer of slice {slice_name} cannot be read: {why}", subject=f"slice {slice_name}")


def no_such_queue(queue: bytes) -> NoSuchQueue:
    """Returns the error of a call about a queue that its home does not have."""
    name = show(queue)
    return NoSuchQueue(f"queue {name} does not exist; declare it first", subject=name)


def no_queue_to_end(queue: bytes) -> NoSuchQueue:
    """Returns the error of a drop or purge of a queue that its home does not have: to declare it would be no help."""
    name = show(queue)
    return NoSuchQueue(f"queue {name} does not exist", subject=name)


def in_use(queue: bytes, slice_name: str) -> Conflict:
    """Returns the error of a queue that is to be dropped if unused."""
    name = show(queue)
    problem = f"queue {name} is in use, and not dropped: a session consumes it at slice {slice_name}"
    return Conflict(problem, subject=name)


def not_empty(queue: bytes, messages: int, slice_name: str) -> Conflict:
    """Returns the error of a queue that is to be dropped if empty."""
    name = show(queue)
    problem = f"queue {name} is not empty, and not dropped: it has a backlog of {messages} at slice {slice_name}"
    return Conflict(problem, subject=name, value=messages)
