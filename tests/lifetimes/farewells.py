"""Says when each queue's farewell is to be said, and when a transient queue ends: neither early nor late. It knows
nothing of the core."""

from __future__ import annotations

from dataclasses import dataclass, field

LATE_MS, LATE_WITH_SMALL_LIMITS_MS = 2_500, 10_000
"""A farewell, the end of a queue, or a dead letter comes within five ticks; where limits are small, a record may do one
thing at a time."""


@dataclass
class Farewell:
    """Keeps a farewell as it was set, and when."""

    body: bytes
    after_s: int
    set_ms: int


@dataclass
class Timer:
    """Keeps the times of a queue. `idle_ms`: when it was consumed last, or said that its time begins anew."""

    expires_after_s: int
    idle_ms: int
    farewell: Farewell | None = None


@dataclass
class Farewells:
    """Keeps what is to be said, and what was. `may_be_said`: farewells that were due when others were set in their
    place: the record that says them may have been first. `late_ms`: how late things may come."""

    late_ms: int = LATE_MS
    timers: dict[str, Timer] = field(default_factory=dict)
    said: list[bytes] = field(default_factory=list)
    to_be_said: set[bytes] = field(default_factory=set)
    may_be_said: set[bytes] = field(default_factory=set)

    def heard(self, body: bytes) -> None:
        """Notes that a farewell was said. Checks that it is said once, and that it was to be said."""
        assert body not in self.said, f"the farewell {body!r} is said twice"
        self.said.append(body)
        known = body in self.to_be_said or body in self.may_be_said
        assert known, f"the farewell {body!r} is said, and no queue had it or was left for so long"
        self.to_be_said.discard(body)

    def check_time(self, name: str, now_ms: int, is_consumed: bool, has_farewell: bool, is_there: bool) -> None:
        """Checks after a tick that the farewell and the end of a queue came neither early nor late."""
        timer = self.timers[name]
        farewell = timer.farewell
        idle_ms = now_ms - timer.idle_ms
        if not is_there:
            assert timer.expires_after_s and not is_consumed, f"{name} is gone"
            assert idle_ms >= 1000 * timer.expires_after_s, f"{name} ended early, after {idle_ms} ms"
            if farewell:
                self.to_be_said.add(farewell.body)
            del self.timers[name]
            return
        if not is_consumed and timer.expires_after_s:
            assert idle_ms < 1000 * timer.expires_after_s + self.late_ms, f"{name} ends late, after {idle_ms} ms"
        if farewell is None:
            assert not has_farewell, f"{name} has a farewell that it was not given"
            return
        idle_ms = min(idle_ms, now_ms - farewell.set_ms)
        if has_farewell:
            late = not is_consumed and idle_ms >= 1000 * farewell.after_s + self.late_ms
            assert not late, f"the farewell of {name} comes late, after {idle_ms} ms"
        else:
            assert not is_consumed, f"the farewell of {name} was said, or lost, while it was consumed"
            assert idle_ms >= 1000 * farewell.after_s, f"the farewell of {name} came early, after {idle_ms} ms"
            self.to_be_said.add(farewell.body)
            timer.farewell = None

    def crashed(self, now_ms: int) -> None:
        """Notes a crash: all times begin anew."""
        for timer in self.timers.values():
            timer.idle_ms = now_ms
