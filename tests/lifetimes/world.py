"""Holds a run: the core, the model, and what was asked of both. Here: changes. Sessions are in consumers.py, time and
crashes in clock.py, what the node tells of itself in told.py."""

from __future__ import annotations

from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.sessions import Session
from tests.lifetimes.driver import Driver
from tests.lifetimes.farewells import Farewell
from tests.lifetimes.model import Model
from tests.lifetimes.order import Order
from tests.slice_node.core_driver import bind, configure, farewell, publish

NAMES = ("p", "q", "r")
KEYS = {
    "plain": KeyOptions(),
    "few": KeyOptions(capacity_messages=5, policy="drop_oldest"),
    "full": KeyOptions(capacity_messages=6),
}
HALL, EAR = "hall", "ear"
"""The key of farewells, and the queue that hears them."""
DEAD, GRAVE = "dead", "grave"
"""The dead-letter key, and the queue that gets the copies."""


class World:
    """Keeps a run. `gaps`: what each session was told of. `told_ms`: the machine's time as the leader was told it last;
    `heard_ms`: what it was when copies were looked at last."""

    def __init__(self) -> None:
        self.core = Driver()
        self.model = Model(KEYS)
        self.order = Order()
        self.bodies = 0
        self.told_ms = self.heard_ms = 0
        self.sessions: list[Session] = []
        self.gaps: dict[int, set[tuple[str, str, int]]] = {}
        self.core.change(*(configure(key, options) for key, options in KEYS.items()))
        self.core.declare([EAR, GRAVE])
        self.core.change(bind(EAR, HALL), bind(GRAVE, DEAD))

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

    def declare(self, name: str, options: QueueOptions, keys: list[str]) -> None:
        if name in self.model.queues:
            return
        self.core.change(wire.Step(declares=wire.Declares(queues=[name.encode()], options=options.to_wire())))
        self.core.change(bind(name, *keys))
        self.model.declare(name, options, keys, self.core.now_ms)

    def publish(self, key: str, count: int, ttl_ms: int) -> None:
        options = KEYS[key]
        bodies = [self.new_body() for _ in range(1 if options.drops_oldest else count)]
        outcome = self.core.change(publish(key, *bodies, ttl_ms=ttl_ms)).steps[0]
        if outcome.refusals:
            assert options.capacity_messages and not options.drops_oldest, f"a publish to {key} was refused"
            self.make_room()
            outcome = self.core.change(publish(key, *bodies, ttl_ms=ttl_ms)).steps[0]
        time_ms = self.wrote()
        if outcome.refusals:
            kept = self.model.kept_max(key)
            assert kept + len(bodies) > options.capacity_messages, f"{key} refused, and has {kept} messages at most"
        elif outcome.offsets[0]:
            self.model.published(key, outcome.offsets[0], bodies, time_ms, ttl_ms)
        else:
            assert not self.model.members(key), f"{key} went nowhere"

    def make_room(self) -> None:
        """Lets what was acked, or has expired, leave the logs."""
        raise NotImplementedError

    def set_farewell(self, name: str, after_s: int) -> None:
        body = self.new_body()
        self.core.change(farewell(name, key=HALL, body=body, after_s=after_s))
        self.model.farewells.timers[name].farewell = Farewell(body, after_s, self.core.now_ms)

    def take_back(self, name: str) -> None:
        self.core.change(farewell(name))
        self.model.farewells.timers[name].farewell = None
