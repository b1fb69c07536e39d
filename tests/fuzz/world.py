"""Holds what the steps of a run act on: a node, its clients, and what they remember."""

from collections.abc import Callable, Sequence
from random import Random
from re import sub

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import QueueOptions
from shoal_slice_node.adapters import requests
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_ownership
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.verbs.changes import parse_change
from tests.fuzz.checks import Checks
from tests.fuzz.live import Lives
from tests.fuzz.node import Client, Node
from tests.fuzz.owed import Life
from tests.fuzz.sources import UNARY
from tests.fuzz.watching import Watches

PARTITIONS = 4
QUEUES = (b"q0", b"q1", b"q2", b"q3")
KEYS = (b"k0", b"k1", b"k2", b"{k1}x", b"{k}4")
HANDLES = (1, 2, 3)
DAY_MS = 86_400_000
FRAMES_KEPT = 20


class World:
    """Holds a node, its clients, and what they remember. `prompt`: the share of requests that are written and applied
    at once. `parts`: purges may come in parts. `options`: a number that decides which queues have bounds."""

    def __init__(self, node: Node, prompt: float, parts: bool, options: int) -> None:
        self.node = node
        self.checks = Checks(node)
        self.lives = Lives()
        self.watches = Watches(node)
        self.prompt = prompt
        self.parts = parts
        self.options = options
        self.bodies = 0
        self.runs = 0
        self.chunks: dict[bytes, int] = {}
        self.said: list[tuple[object, ...]] = []
        self.failed: list[Exception] = []
        """The exceptions of checks that found a wrong answer. The node swallows what its callbacks raise."""
        self.own(b"\x01" * PARTITIONS)
        self.settle()

    def terms(self, name: bytes) -> QueueOptions:
        """Returns the options with which this run mostly declares a queue."""
        number = QUEUES.index(name)
        options = QueueOptions(expires_after_s=5 if name == QUEUES[-1] else 0)
        if number == self.options % 5:
            options.ack_timeout_ms = 1_500
        if number in (self.options % 3, self.options % 4):
            options.max_deliveries = 1 + self.options % 2
            options.dead_letter = (b"", *KEYS)[self.options % 6]
        return options

    def say(self, *words: object) -> None:
        self.said.append(words)

    def told(self) -> str:
        """Returns what was said, one line each."""
        lines = (sub(r"\s+", " ", sub(r"\.{3,}", "...", " ".join(map(str, words)))) for words in self.said)
        return "\n".join(lines)

    def settle(self) -> None:
        """Does everything that was asked so far."""
        node = self.node
        while node.busy:
            node.write(1 << 20)
            node.apply(1 << 20)
            node.work(20)
            node.turn(1)  # A read may wait for dispatch.

    def check_answers(self) -> None:
        """Raises the first exception of a check of answers."""
        if self.failed:
            raise self.failed[0]

    def checked(self, check: Callable[[], None]) -> None:
        """Does a check inside a callback: what it raises ends the run."""
        try:
            check()
        except Exception as error:
            self.failed.append(error)

    def own(self, owned: bytes) -> None:
        payload = encode_ownership(self.node.state.map_version + 1, owned)
        self.node.submit(Item(Kind.OWNERSHIP, payload, lambda _: None, lambda _: None))

    def change(self, random: Random, *steps: wire.Step, purging: bool = False, atomic: bool = False) -> None:
        """Asks for a change, by a session's numbered frame, or unnumbered."""
        data = wire.Change(steps=steps, atomic=atomic).SerializeToString()
        client = pick_client(self, random)
        head = ChangeHead(NO_PRODUCER, 0, 0)
        if client is not None and random.random() < 0.7:
            client.sequence += 1
            head = ChangeHead(client.producer, client.sequence, max(0, client.sequence - random.choice((1, 3, 9))))
            client.frames = [*client.frames[-FRAMES_KEPT:], (client.sequence, data)]
        self.send(head, data, self._purger(steps) if purging else lambda _: None)
        if random.random() < self.prompt:
            self.settle()

    def send(self, head: ChangeHead, data: bytes, then: Callable[[wire.Outcome], None]) -> None:
        def answered(answer: wire.Answer) -> None:
            if not answer.HasField("error"):
                outcome = wire.Outcome.FromString(answer.outcome)
                self.checked(lambda: self._check_live(outcome, list(answer.consumed)))
                self.checked(lambda: then(outcome))

        self.say(head.sequence, wire.Change.FromString(data))
        requests.submit_change(self.node, UNARY, head, data, parse_change(data), answered)  # type: ignore[arg-type]

    @staticmethod
    def _check_live(outcome: wire.Outcome, live: list[int]) -> None:
        routed = [queues for step in outcome.steps for queues in step.queues]
        assert not live or (len(live) == len(routed) and all(map(int.__le__, live, routed))), f"live {live} of {routed}"

    def _purger(self, steps: Sequence[wire.Step]) -> Callable[[wire.Outcome], None]:
        """Returns a callback that goes on until the purge is done. Then it checks that nothing is left of what was owed
        when the purge began."""
        name = steps[0].purges.queues[0]
        owed: list[tuple[Life, bytes, int, int]] = []
        bound: dict[bytes, int] = {}

        def then(outcome: wire.Outcome) -> None:
            if outcome.steps[0].refusals:
                return
            life = self.node.owed.lives[name]
            if not owed:
                before = self.node.owed.before_purge.get(
                    life.number, []
                )  # None where it was dropped and made anew since.
                owed.extend((life, *entry) for entry in before)
                bound.update(life.bound)
            position = outcome.steps[0].positions[0]
            if position:
                step = wire.Step(purges=wire.Purges(queues=[name], positions=[position]))
                data = wire.Change(steps=[step]).SerializeToString()
                self.send(ChangeHead(NO_PRODUCER, 0, 0), data, then)
                return
            for began, key, offset, since in owed:
                left = began is life and life.todo.get(key, {}).get(offset) == since
                assert not left or bound.get(key) != life.bound.get(key), f"{key!r} {offset} is not purged"

        return then


def pick_client(world: World, random: Random, lazy: bool = True) -> Client | None:
    found = [client for client in world.node.clients.values() if lazy or not client.lazy]
    return random.choice(found) if found else None


def body(world: World, random: Random) -> bytes:
    world.bodies += 1
    return b"%d" % world.bodies + b"." * random.choice((0, 0, 9, 400))
