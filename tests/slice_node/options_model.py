"""The reference model of queues with options: ack timeouts, bounds for deliveries, dead letters, exclusive queues.

Belongs here: what options add to reference_model.py. A message that came back to a queue with a bound counts once a
record was applied (`records`); at the bound it is done, and `copies` says which copy must be at the dead-letter key, or
`letters` has it until its copy is on the other slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shoal_contract.options import QueueOptions

from .reference_model import Binding, ReferenceModel


class Id(NamedTuple):
    """Names a message that a queue has to get."""

    queue: str
    key: str
    offset: int


class OptionsModel(ReferenceModel):
    """`far`: the dead-letter key that another slice owns. `counts`: how often a message was delivered and came back.
    `pending`: came back since the last record. `since`: when the first tick saw a message out."""

    def __init__(self, options: Mapping[str, QueueOptions], far: str) -> None:
        super().__init__()
        self.options = options
        self.far = far
        self.counts: dict[Id, int] = {}
        self.pending: dict[Id, str] = {}
        self.letters: dict[Id, str] = {}
        self.copies: dict[Id, tuple[str, int]] = {}
        """Why the message died, and how often it was delivered."""
        self.since: dict[Id, int] = {}
        self.holders = {
            queue: Holders(options[queue].exclusive) for queue in options if options[queue].exclusive != "none"
        }

    def binding(self, one: Id) -> Binding | None:
        return self.queues.get(one.queue, {}).get(one.key)

    def bound(self, queue: str) -> int:
        return self.options[queue].max_deliveries

    # What comes back.

    def _came_back(self, one: Id, reason: str) -> None:
        self.since.pop(one, None)
        if self.bound(one.queue):
            self.pending[one] = reason

    def back(self, queue: str, session: int, reason: str = "left") -> None:
        """`reason` "taken": another session took the queue, and no delivery counts."""
        for key, binding in self.queues.get(queue, {}).items():
            for offset in [offset for offset, holder in binding.given.items() if holder == session]:
                if reason == "taken":
                    self.since.pop(Id(queue, key, offset), None)
                else:
                    self._came_back(Id(queue, key, offset), reason)
        super().back(queue, session)

    def nack(self, queue: str, name: str, low: int, to: int, session: int, delayed: bool, unseen: bool = False) -> None:
        """`unseen`: no program was given the messages, and their delivery does not count."""
        binding = self.queues.get(queue, {}).get(name)
        for offset, holder in binding.given.items() if binding is not None else ():
            if low <= offset < to and holder == session:
                if unseen:
                    self.since.pop(Id(queue, name, offset), None)
                else:
                    self._came_back(Id(queue, name, offset), "nack")
        super().nack(queue, name, low, to, session, delayed, unseen)

    def end_timeouts(self, now_ms: int, begins: bool) -> None:
        """Messages that are out for their queue's ack timeout come back. `begins`: a tick tells the time, so that the
        time of what was given since the last one begins."""
        for queue, bindings in self.queues.items():
            timeout_ms = self.options[queue].ack_timeout_ms
            for key, binding in bindings.items() if timeout_ms else ():
                for offset in list(binding.given):
                    one = Id(queue, key, offset)
                    if begins:
                        self.since.setdefault(one, now_ms)
                    if one in self.since and now_ms - self.since[one] >= timeout_ms:
                        del binding.given[offset]
                        self._came_back(one, "timeout")

    def records(self) -> None:
        """All that came back was written into a record, and applied."""
        pending, self.pending = self.pending, {}
        for one, reason in pending.items():
            self.counts[one] = self.counts.get(one, 0) + 1
            if self.counts[one] >= self.bound(one.queue):
                self._dies(one, reason)

    def _dies(self, one: Id, reason: str) -> None:
        dead_letter = self.options[one.queue].dead_letter
        assert isinstance(dead_letter, str)
        if dead_letter == self.far and one.key != self.far:
            self.letters[one] = reason
            return
        if dead_letter and dead_letter != one.key:
            self.copies[one] = reason, self.counts[one]
        self.done(one)

    def done(self, one: Id) -> None:
        """The queue has not to get the message any more."""
        binding = self.binding(one)
        assert binding is not None and one.offset in binding.left and one.offset not in binding.given
        binding.left.discard(one.offset)
        binding.resting.pop(one.offset, None)
        self._tidy(one.queue, one.key)
        self.sweep()

    def restart(self) -> None:
        """A new leader: nothing is out, what came back and is in no record does not count, and no reason is known."""
        for bindings in self.queues.values():
            for binding in bindings.values():
                binding.given.clear()
                binding.held.clear()
                binding.resting.clear()
        self.pending.clear()
        self.since.clear()
        self.letters = dict.fromkeys(self.letters, "left")
        for holders in self.holders.values():
            holders.forget_all()

    # What no longer counts.

    def give_up(self, name: str, low: int) -> None:
        """A message that was delivered as often as may be is over for its queue: nothing is told of it."""
        super().give_up(name, low)
        for one in [one for one in self.pending | self.letters if one.key == name]:
            binding = self.binding(one)
            if binding is not None and self.dies(one):
                binding.lost.discard(one.offset)
        self.sweep()

    def dies(self, one: Id) -> bool:
        """Whether it is given no more once a record has its count."""
        return one in self.letters or self.counts.get(one, 0) + 1 >= self.bound(one.queue)

    def sweep(self) -> None:
        """Nothing is known of messages that the queue has not to get."""
        known: tuple[dict[Id, str] | dict[Id, int], ...] = (self.counts, self.pending, self.letters, self.since)
        for found in known:
            for one in list(found):
                binding = self.binding(one)
                if binding is None or one.offset not in binding.left:
                    del found[one]

    def drop(self, queue: str) -> None:
        super().drop(queue)
        self.sweep()
        if queue in self.holders:
            self.holders[queue].forget_all()

    def unbind(self, queue: str, name: str, discard: bool, answer: int) -> None:
        super().unbind(queue, name, discard, answer)
        self.sweep()

    def purge(self, queue: str) -> None:
        super().purge(queue)
        self.sweep()

    def ack(self, queue: str, name: str, low: int, to: int, session: int) -> None:
        super().ack(queue, name, low, to, session)
        self.sweep()

    def ack_in_change(self, queue: str, name: str, low: int, to: int) -> None:
        super().ack_in_change(queue, name, low, to)
        self.sweep()

    def given(self, queue: str, name: str, offset: int, body: bytes, session: int) -> None:
        one = Id(queue, name, offset)
        assert one not in self.pending, f"{one} came back, and no record has its count"
        assert one not in self.letters, f"{one} was delivered as often as may be"
        super().given(queue, name, offset, body, session)


class Holders:
    """Says which client may consume an exclusive queue. `word`: "newest" or "oldest"."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.session = 0
        """The number of the session that consumes it; 0: none does."""
        self.owner = b""
        self._known: list[bytes] = []
        """Clients that consume it or lost their connection, by the time of their first attach."""
        self._told: dict[bytes, int] = {}
        """The session of a client that was told that another one consumes the queue. It may not have heard it."""

    def attach(self, session: int, owner: bytes) -> bool:
        """Returns whether the session consumes the queue now; else the other one stays."""
        if self.session == session:
            self._forget(owner)
        else:
            self._knows(session)
            if self.session and owner != self.owner:
                if not self._newer(owner):
                    self._told[owner] = session
                    return False
                self._told[self.owner] = self.session
        self.session, self.owner = session, owner
        self._told.pop(owner, None)
        if owner not in self._known:
            self._known.append(owner)
        return True

    def _knows(self, session: int) -> None:
        """The session asks for something: the word that it was given has arrived, and its client is new again."""
        for owner in [owner for owner, told in self._told.items() if told == session]:
            self._forget(owner)

    def _newer(self, owner: bytes) -> bool:
        known = self._known
        if self.word == "oldest":
            return False
        return owner not in known or self.owner not in known or known.index(owner) > known.index(self.owner)

    def _forget(self, owner: bytes) -> None:
        self._told.pop(owner, None)
        if owner in self._known:
            self._known.remove(owner)

    def detach(self, session: int) -> None:
        """The session leaves the queue by itself: when it comes back, it is new."""
        if self.session == session:
            self._forget(self.owner)
            self.session = 0
        self._knows(session)

    def close(self, session: int) -> None:
        """The session ends, perhaps because its connection is lost: the client is remembered."""
        if self.session == session:
            self.session = 0

    def forget_all(self) -> None:
        self.session = 0
        self._known.clear()
        self._told.clear()
