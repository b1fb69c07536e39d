"""Makes the errors that several modules raise in the same words."""

from __future__ import annotations

from shoal_contract.errors import DeadlineExceeded, NoSuchQueue
from shoal_contract.names import show


def deadline_exceeded(what: str) -> DeadlineExceeded:
    """Returns the error of a call that had no answer in time. `what`: names the call, as "request to slice s01"."""
    return DeadlineExceeded(f"{what}: no answer before the call's deadline; the outcome is unknown", subject=what)


def no_such_queue(queue: bytes) -> NoSuchQueue:
    """Returns the error of a call about a queue that its home does not have."""
    name = show(queue)
    return NoSuchQueue(f"queue {name} does not exist; declare it first", subject=name)
