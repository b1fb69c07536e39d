"""Computes what every queue must get from the events alone; memberships are sets. Pure; knows nothing of the cluster.

Joining when present and leaving when absent do nothing; publishing does not join. A queue's content in a group is its
windows: message numbers first <= n < end, counted from 0 in each group. It keeps 8 bytes per message (the digest of its
body) and one window per membership.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

Window = tuple[int, int]


def digest(body: bytes) -> int:
    """Returns 64 bits, never 0: Python's own keyed hash of bytes (SipHash-1-3, PEP 456). Both sides are in this
    process."""
    return hash(body) or 1


class Due(NamedTuple):
    """Holds a message's number in its group, and how many queues must get it."""

    number: int
    queues: int


class GroupExpectation:
    __slots__ = ("closed", "digests", "members")

    def __init__(self) -> None:
        self.members: dict[bytes, int] = {}
        """The number of the first message that each queue gets, while it is a member."""
        self.closed: dict[bytes, list[Window]] = {}
        """Ended windows that are not empty, ascending."""
        self.digests = array("q")
        """The digest of each message, by number."""

    def windows(self, queue: bytes) -> list[Window]:
        """Returns all windows that are not empty, ascending."""
        windows = list(self.closed.get(queue, ()))
        first, end = self.members.get(queue), len(self.digests)
        if first is not None and first < end:
            windows.append((first, end))
        return windows

    def queues(self) -> set[bytes]:
        return self.members.keys() | self.closed.keys()


class Expectation:
    """Keeps what each queue must get. Events are fed in file order."""

    def __init__(self) -> None:
        self.groups: dict[bytes, GroupExpectation] = {}
        self.deliveries = 0
        """The number of messages, each times the queues that must get it."""

    def join(self, group: bytes, queue: bytes) -> bool:
        """Returns whether the join changes anything."""
        found = self._group(group)
        if queue in found.members:
            return False
        found.members[queue] = len(found.digests)
        return True

    def leave(self, group: bytes, queue: bytes) -> bool:
        """Returns whether the leave changes anything."""
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
