"""What every queue must get, from the events alone: a fold with set semantics. Pure; knows nothing of the cluster.

Joining when present and leaving when absent do nothing; speaking does not join. A queue's content in a group is its
windows: message numbers first <= n < end, counted from 0 in each group. Kept: 8 bytes a message (its body's digest)
and one window a membership.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

Window = tuple[int, int]


def digest(body: bytes) -> int:
    """64 bits, never 0. Python's own keyed hash of bytes (SipHash-1-3, PEP 456): both sides are in this process."""
    return hash(body) or 1


class Due(NamedTuple):
    """A message's number in its group, and how many queues must get it."""

    number: int
    queues: int


class GroupExpectation:
    __slots__ = ("closed", "digests", "members")

    def __init__(self) -> None:
        self.members: dict[bytes, int] = {}
        """Queue -> number of the first message it gets, while it is a member."""
        self.closed: dict[bytes, list[Window]] = {}
        """Ended windows that are not empty, ascending."""
        self.digests = array("q")
        """Of each message, by number."""

    def windows(self, queue: bytes) -> list[Window]:
        """All that is not empty, ascending."""
        windows = list(self.closed.get(queue, ()))
        first, end = self.members.get(queue), len(self.digests)
        if first is not None and first < end:
            windows.append((first, end))
        return windows

    def queues(self) -> set[bytes]:
        return self.members.keys() | self.closed.keys()


class Expectation:
    """Fed in file order."""

    def __init__(self) -> None:
        self.groups: dict[bytes, GroupExpectation] = {}
        self.deliveries = 0
        """Messages times the queues that must get them."""

    def join(self, group: bytes, queue: bytes) -> bool:
        """Whether it changes anything."""
        found = self._group(group)
        if queue in found.members:
            return False
        found.members[queue] = len(found.digests)
        return True

    def leave(self, group: bytes, queue: bytes) -> bool:
        """Whether it changes anything."""
        found = self._group(group)
        first = found.members.pop(queue, None)
        if first is None:
            return False
        if first < len(found.digests):
            found.closed.setdefault(queue, []).append((first, len(found.digests)))
        return True

    def say(self, group: bytes, body: bytes) -> Due:
        found = self._group(group)
        due = Due(len(found.digests), len(found.members))
        found.digests.append(digest(body))
        self.deliveries += due.queues
        return due

    def _group(self, group: bytes) -> GroupExpectation:
        found = self.groups.get(group)
        if found is None:
            found = self.groups[group] = GroupExpectation()
        return found
