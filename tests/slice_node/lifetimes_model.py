"""The reference model of what goes before it is read: messages with a ttl, histories, capacities. Written from
docs/concepts.md and slice_node/GAPS.md.

Belongs here: what may be gone, and who is to be told of it, beside options_model.py. The model never computes where a
log begins. It hears it (`give_up`), and checks that nothing went which was to be kept, and, with what gaps say, that
nothing went in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from shoal.messages import Offset
from shoal_contract.options import PLAIN, KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire

from .options_model import Id, OptionsModel

DROPPED, EXPIRED = wire.GAP_REASON_DROPPED, wire.GAP_REASON_EXPIRED


class Sent(NamedTuple):
    """When a message was published, and when it expires; 0: never."""

    time_ms: int
    expires_ms: int


class LifetimesModel(OptionsModel):
    """`record_ms`: the time of the newest record in the journal. `out_and_gone`: what a session had out when its key
    gave it up, and who had it: the broker forgets that at a moment of its own."""

    def __init__(self, options: Mapping[str, QueueOptions], far: str, record_ms: Callable[[], int]) -> None:
        super().__init__(options, far)
        self.record_ms = record_ms
        self.kept: dict[str, KeyOptions] = {}
        """The options of keys."""
        self.sent: dict[tuple[str, int], Sent] = {}
        self.lows: dict[str, int] = {}
        self.forgotten_to: dict[str, int] = {}
        """By key: a history need not have what is below, as it was not to be kept at some time."""
        self.out_and_gone: dict[Id, int] = {}
        self._told_ms = 0
        self._latest_ms = 0

    # Time.

    def tell(self, wall_ms: int) -> None:
        """A tick tells this leader the machine's time."""
        self._told_ms = max(self._told_ms, wall_ms)

    @property
    def now_ms(self) -> int:
        """The time by which messages expire: it never goes back while a leader leads, nor behind a record."""
        return max(self._told_ms, self.record_ms())

    @property
    def latest_ms(self) -> int:
        """The latest time that any leader has seen."""
        self._latest_ms = max(self._latest_ms, self.now_ms)
        return self._latest_ms

    def is_over(self, name: str, offset: int, at_ms: int = 0) -> bool:
        return 0 < self.sent[name, offset].expires_ms <= (at_ms or self.now_ms)

    def restart(self) -> None:
        super().restart()
        self.out_and_gone.clear()
        self._told_ms = 0

    # What a key keeps.

    def configure_key(self, name: str, options: KeyOptions, head: int) -> None:
        self.let_go()
        self.configure(name, options.history_messages or int(options.keeps_history), head, options.capacity_messages)
        self.kept[name] = options

    def options_of(self, name: str) -> KeyOptions:
        return self.kept.get(name, PLAIN)

    def remembered(self, name: str) -> list[int]:
        """What the key's history must have."""
        options, head, low = self.options_of(name), self.key(name).head, self.forgotten_to.get(name, 0)
        since_ms = self.latest_ms - 1000 * options.history_age_s
        found = []
        for offset in self.key(name).messages:
            recent = options.history_age_s and self.sent[name, offset].time_ms >= since_ms
            if options.capacity_bytes and not options.drops_oldest:  # The history has half of it.
                low = max(low, offset + (self.bytes_from(name, offset) > options.capacity_bytes // 2))
            if offset >= low and (recent or offset >= head - options.history_messages):
                found.append(offset)
        return [offset for offset in found if not self.is_over(name, offset)]

    def kept_from(self, name: str) -> int:
        needed = [offset for binding in self.members(name) for offset in binding.left]
        left = [offset for offset in needed if not self.is_over(name, offset)]
        return min([*left, *self.remembered(name)], default=self.key(name).head)

    def wanted_from(self, name: str, start: wire.Start.ValueType, value: int) -> int:
        if start != wire.START_AGE:
            return super().wanted_from(name, start, value)
        since_ms = self.record_ms() - value
        recent = [offset for offset in self.key(name).messages if self.sent[name, offset].time_ms >= since_ms]
        return min(recent, default=self.key(name).head)

    def let_go(self) -> None:
        """What no history needs now may be gone for ever."""
        for name, key in self.keys.items():
            needed = min(self.remembered(name), default=key.head)
            self.forgotten_to[name] = max(self.forgotten_to.get(name, 0), needed)

    def bind(self, queue: str, name: str, start: wire.Start.ValueType, value: int, answer: int) -> None:
        old = self.queues[queue].get(name)
        fresh = old is None or bool(old.end)
        kept = self.kept_from(name)
        super().bind(queue, name, start, value, answer)
        if fresh and start == wire.START_OFFSET:
            recovered = Offset(value).recovered(answer)
            assert answer == value if recovered else value < max(kept, self.lows.get(name, 0))

    def publish(self, name: str, bodies: list[bytes], offset: int, routed: int, ttl_ms: int = 0) -> None:
        super().publish(name, bodies, offset, routed, ttl_ms)
        time_ms = self.record_ms()
        for one in range(offset, offset + len(bodies)) if offset else ():
            self.sent[name, one] = Sent(time_ms, time_ms + ttl_ms if ttl_ms else 0)

    def give_up(self, name: str, low: int) -> None:
        key, options = self.key(name), self.options_of(name)
        assert low >= self.lows.get(name, 0), "what was given up is there again"
        self.lows[name] = low
        if not self.members(name) and not options.keeps_history:
            return  # It may have vanished, and begun anew.
        for offset in [offset for offset in self.remembered(name) if offset < low]:
            self._check_dropped(name, offset)
        for queue, bindings in self.queues.items():
            binding = bindings.get(name)
            if binding is None:
                continue
            gone = {offset for offset in binding.left if offset < low}
            for offset in gone:
                if not self.is_over(name, offset):
                    self._check_dropped(name, offset)
            self.brief.update((name, offset) for offset in gone if (name, offset) in self.fresh)
            out = {offset: holder for offset, holder in binding.given.items() if offset in gone}
            self.out_and_gone |= {Id(queue, name, offset): holder for offset, holder in out.items()}
            binding.lost |= {offset for offset in gone - out.keys() if not self._is_dying(Id(queue, name, offset))}
            binding.left -= gone
            for offset in gone:
                binding.given.pop(offset, None)
                binding.resting.pop(offset, None)
        for queue in list(self.queues):
            if name in self.queues[queue]:
                self._tidy(queue, name)
        self.forgotten_to[name] = max(self.forgotten_to.get(name, 0), low)
        self.sweep()
        assert key.head >= low

    def _check_dropped(self, name: str, offset: int) -> None:
        """A message that was to be kept has gone: its key drops the oldest, and needed the room."""
        key, options = self.key(name), self.options_of(name)
        assert options.drops_oldest, f"{name} {offset} has gone, and was to be kept"
        chunk = max(first for first in key.chunks if first <= offset)
        over = 0 < options.capacity_messages < key.head - chunk
        over_bytes = 0 < options.capacity_bytes < self.bytes_from(name, offset)
        assert over or over_bytes, f"{name} {offset} need not have gone"

    def bytes_from(self, name: str, offset: int) -> int:
        """The body bytes of the chunk with this offset, and of all later ones."""
        key = self.key(name)
        chunk = max([first for first in key.chunks if first <= offset], default=offset)
        return sum(len(body) for one, body in key.messages.items() if one >= chunk)

    def _is_dying(self, one: Id) -> bool:
        return (one in self.pending or one in self.letters) and self.dies(one)

    # What consumers get, and hear.

    def given(self, queue: str, name: str, offset: int, body: bytes, session: int) -> None:
        assert not self.is_over(name, offset), f"{name} {offset} has expired, and is delivered"
        super().given(queue, name, offset, body, session)

    def told(self, queue: str, name: str, first: int, to: int, why: int) -> None:
        binding = self.queues.get(queue, {}).get(name)
        options, low = self.options_of(name), self.lows.get(name, 0)
        below = DROPPED if options.drops_oldest else EXPIRED
        expired = all(self.is_over(name, offset) for offset in range(first, to) if (name, offset) in self.sent)
        assert (why == EXPIRED and expired) or (why == below and to <= low), f"{name} {first} to {to}: told {why}"
        if binding is None:
            return
        gone = set(range(first, to))
        assert not gone & binding.given.keys(), "a session has it, and another is told that it is gone"
        assert to <= low or expired, "it is still to be given"
        for offset in gone & binding.left:
            binding.left.discard(offset)
            binding.resting.pop(offset, None)
        binding.lost -= gone
        self._tidy(queue, name)
        self.sweep()

    def back(self, queue: str, session: int, reason: str = "left") -> None:
        super().back(queue, session, reason)
        for one in [one for one, holder in self.out_and_gone.items() if (one.queue, holder) == (queue, session)]:
            del self.out_and_gone[one]

    # Dead letters.

    def _dies(self, one: Id, reason: str) -> None:
        """There is no copy of what has expired by the time of the record."""
        if self.options[one.queue].dead_letter != self.far and self.is_over(one.key, one.offset, self.record_ms()):
            self.done(one)
        else:
            super()._dies(one, reason)

    def letters_over(self) -> list[Id]:
        """Letters that are not sent any more."""
        return [one for one in self.letters if self.is_over(one.key, one.offset, self.record_ms())]
