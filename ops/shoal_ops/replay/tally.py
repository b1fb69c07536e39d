"""The counts of a replay, from which progress is shown, and its final report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from shoal_ops.limits import MISMATCHES_SHOWN_MAX
from shoal_ops.replay.comparison import Mismatch


@dataclass(slots=True)
class Tally:
    """Counts the work that the cluster has acknowledged so far. `on_event` is called after each event that is done."""

    events: int = 0
    binds: int = 0
    unbinds: int = 0
    messages: int = 0
    on_event: Callable[[int], None] | None = field(default=None, compare=False)

    def event_done(self) -> None:
        self.events += 1
        if self.on_event is not None:
            self.on_event(self.events)


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Holds the result of a replay. `deliveries`: messages times queues, each once. `redeliveries`: given again after
    an interruption.

    `mismatches` counts messages; `first_mismatches` lists some. `seconds`: from the first event to the end of the
    comparison.
    """

    files: tuple[str, ...]
    groups: int
    queues: int
    events: int
    binds: int
    unbinds: int
    messages: int
    deliveries: int
    mismatches: int
    redeliveries: int
    seconds: float
    first_mismatches: tuple[Mismatch, ...] = ()

    def as_json(self) -> dict[str, object]:
        shown = asdict(self)
        shown["seconds"] = round(self.seconds, 3)
        shown["first_mismatches"] = shown["first_mismatches"][:MISMATCHES_SHOWN_MAX]
        return shown
