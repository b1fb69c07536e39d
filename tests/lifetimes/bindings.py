"""Says what one queue is owed of one key: which messages, which session has each, how often each came back, and until
when one that was given back rests. It knows nothing of the core.

Not here: what messages are, and when they go (model.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal_contract.options import QueueOptions


@dataclass
class Out:
    """Says which session has a message, and since which tick it is seen to have it."""

    session: int
    since_ms: int | None = None


@dataclass
class Binding:
    """Keeps what a queue is owed of a key.

    `out`: read by a session, not acked, and not back. `acked`: not journaled yet, perhaps. `told`: as gaps. `doubtful`:
    acked, or told as a gap, before a crash, so that it may come again. `over`: done without a word, or gone.

    `times`: between which numbers the count of a message is, where deliveries have a bound. `undecided`: messages that
    came back, and no delivery showed since that a record has it: a crash may forget it. `reasons`: why each came back
    last. `died_ms`: when one came back as often as may be. `rests`: until when one is not given."""

    options: QueueOptions
    owed: set[int] = field(default_factory=set)
    out: dict[int, Out] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    told: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)
    times: dict[int, tuple[int, int]] = field(default_factory=dict)
    undecided: set[int] = field(default_factory=set)
    reasons: dict[int, set[str]] = field(default_factory=dict)
    died_ms: dict[int, int] = field(default_factory=dict)
    rests: dict[int, int] = field(default_factory=dict)

    @property
    def bound(self) -> int:
        return self.options.max_deliveries

    def times_of(self, offset: int) -> tuple[int, int]:
        return self.times.get(offset, (0, 0))

    def may_have_died(self, offset: int) -> bool:
        return 0 < self.bound <= self.times_of(offset)[1]

    def given(self, offset: int, session: int, redelivered: int, now_ms: int) -> None:
        """Notes that a session read a message. Checks that it was there to be given."""
        if offset in self.doubtful:
            self.doubtful.discard(offset)
            self.owed.add(offset)
        assert offset in self.owed, f"{offset} is not owed"
        assert offset not in self.out, f"{offset} is given to session {session}, and session {self.out[offset]} has it"
        assert now_ms >= self.rests.pop(offset, 0), f"{offset} comes again before the delay of its nack is over"
        if self.bound:
            low, high = self.times_of(offset)
            assert low <= redelivered <= high, f"{offset} came back {low} to {high} times, not {redelivered}"
            assert redelivered < self.bound, f"{offset} is given once more than {self.bound} times"
            self.times[offset] = redelivered, redelivered
            self.undecided.discard(offset)
        self.out[offset] = Out(session)

    def came_back(self, offset: int, reason: str, now_ms: int, counts: bool = True, delay_ms: int = 0) -> None:
        """Notes that a session has a message no more. `counts`: it was delivered."""
        del self.out[offset]
        if delay_ms:
            self.rests[offset] = now_ms + delay_ms
        if not (self.bound and counts):
            return
        low, high = self.times_of(offset)
        self.times[offset] = low + 1, high + 1
        self.undecided.add(offset)
        self.reasons[offset] = {reason}
        if low + 1 >= self.bound:
            self.died_ms[offset] = now_ms

    def left(self, session: int, now_ms: int, counts: bool = True) -> None:
        """Notes that a session consumes the queue no more."""
        for offset in [offset for offset, out in self.out.items() if out.session == session]:
            self.came_back(offset, "left", now_ms, counts)

    def ticks(self, now_ms: int) -> None:
        """Notes that the node was told the time: what is out for as long as may be comes back."""
        timeout_ms = self.options.ack_timeout_ms
        for offset, out in list(self.out.items()) if timeout_ms else ():
            if out.since_ms is None:
                out.since_ms = now_ms
            elif now_ms - out.since_ms >= timeout_ms:
                self.came_back(offset, "timeout", now_ms)

    def was_acked(self, offset: int) -> None:
        del self.out[offset]
        if offset in self.owed:
            self.owed.discard(offset)
            self.acked.add(offset)

    def is_gone(self, offset: int) -> None:
        """Notes that the queue was told that a message is gone. A gap may span one that a session has and keeps."""
        if offset in self.owed:
            self.owed.discard(offset)
            self.told.add(offset)
            self.died_ms.pop(offset, None)

    def copied(self, offset: int, times: int, reason: str) -> None:
        """Notes that a copy is at the dead-letter key. Checks that there is to be one."""
        assert self.bound and offset in self.owed | self.doubtful, f"{offset} is copied, and was not owed"
        assert offset not in self.out, f"{offset} is copied, and session {self.out[offset].session} has it"
        assert self.may_have_died(offset) and times == self.bound, f"{offset} is copied, delivered {times} times"
        known = self.reasons.get(offset)
        assert known is None or reason in known, f"{offset} is copied for {reason}, and came back for {known}"
        self._end(offset)

    def ends(self, offset: int) -> None:
        """Notes that a message that died is done, and that nothing tells of it."""
        self._end(offset)

    def _end(self, offset: int) -> None:
        self.owed.discard(offset)
        self.doubtful.discard(offset)
        self.died_ms.pop(offset, None)
        self.undecided.discard(offset)
        self.over.add(offset)

    def crashed(self) -> None:
        """Notes a crash: nothing is out and nothing rests, and what was in no record is forgotten."""
        self.doubtful |= self.acked | self.told
        self.acked.clear()
        self.out.clear()
        self.rests.clear()
        for offset in self.undecided:
            low, high = self.times_of(offset)
            self.times[offset] = low - 1, high
            self.died_ms.pop(offset, None)
        self.undecided.clear()
        for reasons in self.reasons.values():
            reasons.add("left")
