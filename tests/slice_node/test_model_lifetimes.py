"""What goes before it is read, side by side with the reference model, among all the steps of test_model_options:
messages with a ttl, histories by count and by age, capacities that refuse or drop the oldest, binds by age.

After each step the model hears where each key's log begins, and checks that nothing went that was to be kept. In the
end each consumer has got a message, or was told of the gap.
"""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, precondition, rule

from shoal_contract.errors import ResourceExhausted, from_wire
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.read.reading import describe_queue, peek
from shoal_slice_node.core.rows.key_row import KeyRow, decode_key
from shoal_slice_node.core.rows.log_row import decode_log
from shoal_slice_node.core.turns import finish

from .core_driver import bodies_of, configure, publish
from .lifetimes_model import LifetimesModel
from .options_machine import CAPACITY, DEAD, FAR, FULL, HOUR_MS, OptionsMachine
from .options_model import Id
from .slice_machine import KEYS, LEASED, QUEUES, RUNS, bodies, keys, queues, small
from .walked import walk_bindings

TTLS_MS = (1, 400, 1_500, HOUR_MS, 2 * HOUR_MS)
AGES_MS = (0, 1, 300, 1_000, 5_000, HOUR_MS, 1 << 40)
"""Of binds, by the small number that is drawn."""
HISTORIES = (KeyOptions(), KeyOptions(1), KeyOptions(3), KeyOptions(history_age_s=1), KeyOptions(2, HOUR_MS // 1000))
ttls = st.sampled_from(TTLS_MS)


CAPACITY_BYTES = 30
"""As much as the largest chunk has."""


def limited(history: KeyOptions, policy: str, in_bytes: bool) -> KeyOptions:
    """A history, of a key with a capacity."""
    capacity = (0, CAPACITY_BYTES) if in_bytes else (CAPACITY, 0)
    return KeyOptions(history.history_messages, history.history_age_s, *capacity, policy=policy)


class LifetimesMachine(OptionsMachine):
    model: LifetimesModel

    def new_model(self) -> LifetimesModel:
        return LifetimesModel(self.options, FAR, lambda: self.core.records[-1].time_ms)

    def begin(self) -> None:
        super().begin()
        for name, options in ((DEAD, KeyOptions(1000)), (FULL, KeyOptions(capacity_messages=CAPACITY))):
            self.model.configure_key(name, options, self.key_row(name).head)
        self.declares(QUEUES[2])  # Nothing consumes it: what it has to get stays.
        self.binds(QUEUES[2], [*KEYS, FULL], wire.START_UNSPECIFIED, 0)

    # What keys keep.

    def gives_up(self) -> None:
        """The model hears where logs begin."""
        for name in list(self.model.keys):
            row = self.row_of(name)
            if row is not None:
                self.model.give_up(name, row.low)
        self.model.fresh.clear()
        self.model.let_go()

    @invariant()
    @precondition(lambda self: hasattr(self, "core"))
    def nothing_goes_that_was_to_be_kept(self) -> None:
        self.gives_up()

    def row_of(self, name: str) -> KeyRow | None:
        row = self.core.tables.key.get(self.core.state.full_name(name.encode()))
        return None if row is None else decode_key(row)

    def configures(self, name: str, history: int, capacity: int) -> None:
        """No rule here: see below."""

    @rule(
        name=st.one_of(keys, st.just(FULL), st.just(FULL)),
        history=st.sampled_from(HISTORIES),
        policy=st.sampled_from(["", "reject", "drop_oldest"]),
        in_bytes=st.booleans(),
    )
    def configures_key(self, name: str, history: KeyOptions, policy: str, in_bytes: bool = False) -> None:
        """A capacity that is exceeded already is kept from the next publish on. Only the key `full` refuses."""
        row = self.row_of(name)
        kept = 0 if row is None else row.head - row.low
        is_over = self.kept_bytes(name) > CAPACITY_BYTES if in_bytes else kept > CAPACITY
        policy = "" if is_over or (name != FULL and policy == "reject") else policy
        options = limited(history, policy, in_bytes) if policy else history
        self.change(configure(name, options))
        row = self.row_of(name)
        self.model.configure_key(name, options, 0 if row is None else row.head)

    def kept_bytes(self, name: str) -> int:
        """What a key keeps now."""
        row = self.row_of(name)
        return 0 if row is None or row.low == row.head else self.model.bytes_from(name, row.low)

    @rule(queue=queues, messages=st.integers(1, 4), ttl_ms=st.sampled_from([0, 0, *TTLS_MS]))
    def publishes_to_the_full(self, queue: str, messages: int, ttl_ms: int = 0) -> None:
        """A publish is refused where what the key keeps leaves no room, and where what it must keep leaves some, it is
        not."""
        self.take_all()
        row, options = self.row_of(FULL), self.model.options_of(FULL)
        kept_bytes, body_bytes = self.kept_bytes(FULL), 4 * messages
        outcome = self.change(publish(FULL, *[b"full"] * messages, ttl_ms=ttl_ms)).steps[0]
        kept = self.model.kept_from(FULL)  # By the time of the record: what has expired by then takes no room.
        needed_bytes = self.model.bytes_from(FULL, kept) if kept < self.model.key(FULL).head else 0
        refuses = options.policy == "reject"
        most = CAPACITY if options.capacity_messages and refuses else 1 << 40
        most_bytes = CAPACITY_BYTES if options.capacity_bytes and refuses else 1 << 40
        if outcome.refusals:
            assert row is not None
            assert row.head - row.low + messages > most or kept_bytes + body_bytes > most_bytes
            assert isinstance(from_wire(outcome.refusals[0].error), ResourceExhausted)
            after = self.row_of(FULL)
            assert after is not None and after == row._replace(low=after.low), "it gives up what has expired, no more"
            self.gives_up()
            return
        if outcome.offsets[0] and row is not None:
            kept = max(kept, self.passed_to(kept))
            assert row.head - min(kept, row.head) + messages <= most and needed_bytes + body_bytes <= most_bytes
        self.model.publish(FULL, [b"full"] * messages, outcome.offsets[0], outcome.queues[0], ttl_ms)
        self.gives_up()

    def passed_to(self, kept: int) -> int:
        """Of the chunk where the history of `full` begins, what is before does not count, though a queue needs it; also
        if the history was asked for after that."""
        key, history = self.model.key(FULL), self.model.options_of(FULL).history_messages
        began = key.head - history if history else 0
        firsts = max(min(self.model.remembered(FULL), default=0), began), began  # What came before it may count or not.
        begun = [one for one in firsts if one and max([of for of in key.chunks if of <= one], default=kept + 1) <= kept]
        return max(begun, default=0)

    # What expires.

    @rule(name=st.one_of(keys, keys, st.sampled_from(["@" + queue for queue in QUEUES])), sent=bodies, ttl_ms=ttls)
    def publishes_for_a_time(self, name: str, sent: list[bytes], ttl_ms: int) -> None:
        self.take_all()
        outcome = self.change(publish(name, *sent, ttl_ms=ttl_ms)).steps[0]
        self.model.publish(name, sent, outcome.offsets[0], outcome.queues[0], ttl_ms)
        self.gives_up()

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), name=st.sampled_from(KEYS[:2]), sent=bodies, ttl_ms=st.sampled_from(TTLS_MS[1:3]))
    def leaves_what_expires(self, data: st.DataObject, name: str, sent: list[bytes], ttl_ms: int) -> None:
        """A session ends with messages that expire while it has them, or a little later; they are not the log's
        first ones."""
        self.publishes(name, [b"stays"])
        self.publishes_for_a_time(name, sent, ttl_ms)
        self.take_all()
        self.maintains(600)
        self.closes(data)
        self.maintains(0)

    @rule(name=keys, sent=bodies, after_ms=st.sampled_from([0, 300, 1000]), ttl_ms=ttls)
    def publishes_later_for_a_time(self, name: str, sent: list[bytes], after_ms: int, ttl_ms: int) -> None:
        not_before_ms = self.core.wall_ms + after_ms
        self.change(publish(name, *sent, not_before_ms=not_before_ms, ttl_ms=ttl_ms))
        self.model.delay(name, sent, not_before_ms, ttl_ms)

    def ticks(self, leases_over: bool) -> bool:
        self.model.tell(self.core.wall_ms)
        found = super().ticks(leases_over)
        self.ends_letters()
        return found

    def ends_letters(self) -> None:
        """A letter of what has expired is not sent, at a moment of the courier's."""
        for one in self.model.letters_over():
            if one.offset not in self.left_in_tables(one.queue, one.key):
                self.model.done(one)

    def left_in_tables(self, queue: str, name: str) -> set[int]:
        queue_id, row = self.core.tables.queue_by_name.get(queue.encode()), self.row_of(name)
        assert queue_id is not None and row is not None
        for batch in walk_bindings(self.core.state, queue_id):
            for found in batch:
                if found.key_id == row.id:
                    kept = found.kept_from(row.low)
                    done = {offset for low, high in kept.done().pairs() for offset in range(low, high)}
                    return set(range(kept.cursor, kept.end or row.head)) - done
        return set()

    @rule(later_ms=st.sampled_from([0, 600, 600]))
    def maintains(self, later_ms: int) -> None:
        super().maintains(later_ms)
        self.nothing_over_is_kept_first()

    def nothing_over_is_kept_first(self) -> None:
        """Whatever consumes: the beginning of a log is given up once it has expired, by the clock that is shown."""
        for name in self.model.keys:
            row = self.row_of(name)
            if row is not None and row.low < row.head:
                (_, stored), *_ = self.core.tables.log.read(row.id, row.low, row.low)
                expires_ms = decode_log(stored).expires_ms
                assert not 0 < expires_ms <= self.core.wall_ms, f"{name} keeps {row.low}, which has expired"

    @rule(half_hours=st.sampled_from([1, 2, 5]))
    def waits(self, half_hours: int) -> None:
        super().waits(half_hours)
        options = self.model.options_of(FULL)
        left = any(binding.left for binding in self.model.members(FULL))
        if options.policy == "reject" and not left and not options.history_age_s:
            self.model.let_go()
            outcome = self.change(publish(FULL, b"x")).steps[0]
            assert not outcome.refusals, "all have all of it, and it refuses still"
            self.model.publish(FULL, [b"x"], outcome.offsets[0], outcome.queues[0])

    # The other verbs, where these need more.

    @rule(
        queue=queues,
        names=st.lists(st.one_of(keys, st.sampled_from([DEAD, FULL])), min_size=1, max_size=3),
        start=st.sampled_from([wire.START_UNSPECIFIED, wire.START_AGE, *wire.Start.values()]),
        value=small,
    )
    def binds(self, queue: str, names: list[str], start: wire.Start.ValueType, value: int) -> None:
        super().binds(queue, names, start, AGES_MS[value] if start == wire.START_AGE else value)

    @rule(
        queue=queues,
        name=st.sampled_from(KEYS),
        start=st.sampled_from(wire.Start.values()),
        value=small,
        gone=st.booleans(),
    )
    def joins_again(self, queue: str, name: str, start: wire.Start.ValueType, value: int, gone: bool) -> None:
        """As a member that comes back, and looks at the history."""
        self.unbinds(queue, [name], gone)
        self.binds(queue, [name], start, value)

    def pulled_and_gone(self) -> bool:
        """Whether it is open which queues pulls consume: a key gave up what was pulled."""
        return bool({LEASED, self.puller_session.number} & set(self.model.out_and_gone.values()))

    def may_be_used(self, queue: str) -> bool:
        """A session still has what it pulled: it may ack it, though the key gave it up."""
        pulled = {LEASED, self.puller_session.number}
        return any(one.queue == queue and holder in pulled for one, holder in self.model.out_and_gone.items())

    @rule(queue=queues, if_unused=st.booleans(), if_empty=st.booleans())
    def drops(self, queue: str, if_unused: bool, if_empty: bool) -> None:
        super().drops(queue, if_unused and not self.pulled_and_gone(), if_empty)

    @rule(names=st.lists(queues, min_size=2, max_size=3, unique=True), if_unused=st.booleans(), if_empty=st.booleans())
    def drops_many(self, names: list[str], if_unused: bool, if_empty: bool) -> None:
        super().drops_many(names, if_unused and not self.pulled_and_gone(), if_empty)

    @rule(name=keys, messages=st.integers(1, 3))
    def publishes_live(self, name: str, messages: int) -> None:
        if not self.pulled_and_gone():
            super().publishes_live(name, messages)

    def is_level(self, queue: str, name: str) -> bool:
        return super().is_level(queue, name) and not self.model.queues[queue][name].lost

    @precondition(lambda self: self.model.queues)
    @rule(data=st.data(), messages=small)
    def describes_and_peeks(self, data: st.DataObject, messages: int) -> None:
        """Depth counts what has expired until it is passed over; a peek does not show it."""
        self.take_all()
        self.flush_acks()
        self.gives_up()
        name = data.draw(st.sampled_from(sorted(self.model.queues)))
        described = describe_queue(self.core.state, name.encode(), 0)
        assert (described.messages, described.body_bytes) == self.model.depth(name)
        queue_id = self.core.tables.queue_by_name.get(name.encode())
        assert queue_id is not None
        peeked = peek(self.core.state, queue_id, messages, 1 << 20, self.core.dispatcher.expiry_clock_ms)
        found = [Id(name, key, offset) for one in finish(peeked) for key, offset, _ in bodies_of(one)]
        valid = {
            Id(name, key, offset)
            for key, binding in self.model.queues[name].items()
            for offset in binding.left
            if not self.model.is_over(key, offset)
        }
        assert len(found) == min(messages, len(valid)) and set(found) <= valid

    def sends_letters(self) -> None:
        """The courier also finds out which letters have no message any more."""
        super().sends_letters()
        letters = self.core.dispatcher.registry.returns.letters
        for _ in range(100):
            if letters.unsent:
                self.the_courier_goes("sent")
                self.maintains(600)

    def teardown(self) -> None:
        if hasattr(self, "core"):
            super().teardown()
            assert not list(self.core.tables.history.scan()) and not list(self.core.tables.due.scan())


TestLifetimes = pytest.mark.timeout(600)(LifetimesMachine.TestCase)
TestLifetimes.settings = settings(RUNS, max_examples=100)


@pytest.mark.long
@pytest.mark.timeout(1800)
class TestLifetimesLong(LifetimesMachine.TestCase):  # type: ignore[valid-type,misc]
    """More of the same."""

    settings = settings(RUNS, max_examples=3000)
