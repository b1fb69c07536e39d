"""Holds a run: the core, the model, and what was asked of both. Here: changes. The others add to it, each to the
one before: consumers.py (sessions), hearing.py (what is said, and what dies), clock.py, crashes.py, ending.py, told.py
(what the node tells of itself)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.sessions import Session
from tests.lifetimes.driver import Driver
from tests.lifetimes.farewells import LATE_MS, LATE_WITH_SMALL_LIMITS_MS, Farewell, Farewells
from tests.lifetimes.model import Model
from tests.lifetimes.order import Order
from tests.slice_node.core_driver import bind, configure, farewell, publish

NAMES = ("p", "q", "r")
KEYS = {
    "plain": KeyOptions(),
    "few": KeyOptions(capacity_messages=5, policy="drop_oldest"),
    "full": KeyOptions(capacity_messages=6),
    "late": KeyOptions(capacity_messages=5, policy="drop_oldest"),
    "past": KeyOptions(history_messages=3, history_age_s=2),
}
PAST = "past"
"""The key with a history: queues bind it from now, or from before."""
LATE, STILL = "late", "still"
"""The key of delayed publishes, and a queue that is bound to it and consumes nothing: so the key never begins anew, and
its head says what was published."""
NEVER_LATE_MS = 1 << 40
"""How late farewells may be where queues share times: each that is left anew makes the others wait."""
HALL, EAR = "hall", "ear"
"""The key of farewells, and the queue that hears them."""
DEAD, GRAVE = "dead", "grave"
"""The dead-letter key, and the queue that gets the copies."""


class Start(NamedTuple):
    """Says from where a queue binds PAST: from its last `messages`, or from those of the last `age_ms`; both None: from
    the first one that is kept."""

    messages: int | None = None
    age_ms: int | None = None

    @property
    def kind(self) -> wire.Start.ValueType:
        if self.age_ms is not None:
            return wire.START_AGE
        return wire.START_EARLIEST if self.messages is None else wire.START_LAST

    @property
    def value(self) -> int:
        return self.age_ms or self.messages or 0

    def since_ms(self, time_ms: int) -> int | None:
        return None if self.age_ms is None else time_ms - self.age_ms


class World:
    """Keeps a run. `gaps`: what each session was told of. `told_ms`: the machine's time as the leader was told it last;
    `heard_ms`: what it was when copies were looked at last. `is_prompt`: no limit is small, so all comes in time."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.core = Driver()
        self.is_prompt = not limits
        late_ms = LATE_MS if self.is_prompt else LATE_WITH_SMALL_LIMITS_MS
        farewells = Farewells(NEVER_LATE_MS if "LEFT_TIMES_MAX" in limits else late_ms)
        self.model = Model(KEYS, late_ms, farewells=farewells)
        self.order = Order()
        self.bodies = self.frames = 0
        self.told_ms = self.heard_ms = 0
        self.sessions: list[Session] = []
        self.gaps: dict[int, set[tuple[str, str, int]]] = {}
        self.core.change(*(configure(key, options) for key, options in KEYS.items()))
        self.core.declare([EAR, GRAVE, STILL])
        self.core.change(bind(EAR, HALL), bind(GRAVE, DEAD), bind(STILL, LATE))

    def new_body(self) -> bytes:
        self.bodies += 1
        return b"%06d" % self.bodies

    def wrote(self) -> int:
        """Notes that a record was written. Returns its time."""
        time_ms = self.core.records[-1].time_ms
        self.model.latest_ms = max(self.model.latest_ms, time_ms)
        return time_ms

    def look(self) -> None:
        """Notes which queues are consumed now. Checks that one session alone has an exclusive one."""
        for name in self.model.queues:
            if consumers := len(self.consumers(name)):
                self.model.farewells.timers[name].idle_ms = self.core.now_ms
                is_exclusive = self.model.options_of(name).exclusive != "none"
                assert consumers == 1 or not is_exclusive, f"{consumers} sessions have {name}, which is exclusive"

    def consumers(self, name: str) -> list[Session]:
        """Returns the sessions that are attached, by what they themselves have."""
        return [session for session in self.sessions if NAMES.index(name) + 1 in session.attachments]

    # Changes.

    def declare(self, name: str, options: QueueOptions, keys: list[str], start: Start) -> None:
        """Declares a queue, and binds it. `start`: where its binding of PAST begins; other keys begin now."""
        if name in self.model.queues:
            return
        self.core.change(wire.Step(declares=wire.Declares(queues=[name.encode()], options=options.to_wire())))
        self.core.change(bind(name, *(key for key in keys if key != PAST)))
        self.model.declare(name, options, keys, self.core.now_ms)
        if PAST in keys:
            (outcome,) = self.core.change(bind(name, PAST, start=start.kind, value=start.value)).steps
            time_ms = self.wrote()
            wanted = self.model.wanted(PAST, start.messages, start.since_ms(time_ms))
            self.model.begins_at(name, PAST, outcome.offsets[0], wanted)

    def publish(self, key: str, count: int, ttl_ms: int) -> None:
        options = KEYS[key]
        bodies = [self.new_body() for _ in range(1 if options.drops_oldest else count)]
        outcome = self.core.change(publish(key, *bodies, ttl_ms=ttl_ms)).steps[0]
        for wait_ms in (0, 1_200):
            if outcome.refusals and not self.is_full(key, len(bodies)):
                assert options.capacity_messages and not options.drops_oldest, f"a publish to {key} was refused"
                self.make_room(wait_ms)
                outcome = self.core.change(publish(key, *bodies, ttl_ms=ttl_ms)).steps[0]
        if outcome.refusals:
            kept = self.model.kept_max(key)
            is_full = self.is_full(key, len(bodies))
            assert is_full or not self.is_prompt, f"{key} refused, and has {kept} messages at most"
        else:
            self.published(key, outcome.offsets[0], bodies, ttl_ms)

    def published(self, key: str, first: int, bodies: list[bytes], ttl_ms: int) -> None:
        """Notes a publish that the node took. `first`: its offset; 0: it went nowhere."""
        time_ms = self.wrote()
        if first:
            self.model.published(key, first, bodies, time_ms, ttl_ms)
        else:
            assert not self.model.members(key) and key != PAST, f"{key} went nowhere"

    def is_full(self, key: str, more: int) -> bool:
        """Returns whether a key may have no room for so many more messages."""
        return self.model.kept_max(key) + more > KEYS[key].capacity_messages > 0

    def publish_later(self, after_ms: int, bodies: int, ttl_ms: int) -> None:
        chunk = [self.new_body() for _ in range(bodies)]
        not_before_ms = self.core.wall_ms + after_ms
        self.core.change(publish(LATE, *chunk, ttl_ms=ttl_ms, not_before_ms=not_before_ms))
        self.model.delay(LATE, not_before_ms, chunk, ttl_ms)

    def make_room(self, wait_ms: int) -> None:
        """Lets what is done, or has expired, leave the logs: at once, or in a while."""
        raise NotImplementedError

    def set_farewell(self, name: str, after_s: int) -> None:
        body = self.new_body()
        self.core.change(farewell(name, key=HALL, body=body, after_s=after_s))
        self.model.farewells.timers[name].farewell = Farewell(body, after_s, self.core.now_ms)

    def take_back(self, name: str) -> None:
        self.core.change(farewell(name))
        self.model.farewells.timers[name].farewell = None
