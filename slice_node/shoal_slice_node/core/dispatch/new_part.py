"""Defines what a session is told of a part that one of its queues got after it was attached."""

from __future__ import annotations

from typing import NamedTuple


class NewPart(NamedTuple):
    """Says of a queue's part its ack timeout, in milliseconds (0: none), and its number, which tells one life of the
    queue from another."""

    ack_timeout_ms: int
    life: int
