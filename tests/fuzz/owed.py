"""Models what a slice keeps, as plain sets and dicts: which queues exist, what they are bound to and owed.

The model is written from docs/concepts.md and knows no row, cursor or id. It hears of each record when the record is
applied, with the slice's answer, and checks that this answer is allowed. Where that page leaves a choice to the slice
(when a key vanishes, when a log is trimmed), the model accepts the slice's choice, within bounds.

Belongs here: what records do. Not here: what consumers hold (given.py). Long because it has the rule of each verb.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from typing import NamedTuple, Protocol
from zlib import crc32

from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import ShoalError
from shoal_contract.options import QueueOptions
from shoal_contract.wire import common_pb2 as errors
from shoal_contract.wire import slice_pb2 as wire
from tests.fuzz.delayed import Delayed
from tests.fuzz.deliveries import Deliveries
from tests.fuzz.farewells import Farewells

Codes = set[int]
OK = 0
NO_SUCH_QUEUE = errors.ERROR_CODE_NO_SUCH_QUEUE
NOT_OWNER = errors.ERROR_CODE_NOT_OWNER
CONFLICT = errors.ERROR_CODE_CONFLICT
EXHAUSTED = errors.ERROR_CODE_RESOURCE_EXHAUSTED
OUT_OF_RANGE = errors.ERROR_CODE_OUT_OF_RANGE
UNROUTABLE = errors.ERROR_CODE_UNROUTABLE
IN_USE = (1 << 64) - 1  # In a record, instead of an incarnation: the leader found the queue in use.


class Bounds(NamedTuple):
    """The limits that answers depend on."""

    done_ranges: int
    away_ranges: int
    bindings: int
    answers: int


class Look(Protocol):
    """Answers what the model may ask the slice, where the slice's answers do not tell it."""

    def key(self, key: bytes) -> wire.KeyDescription: ...

    def depths(self, queue: bytes) -> Mapping[bytes, int]:
        """Returns the number of messages owed, by key."""

    def incarnation(self, queue: bytes) -> int: ...


class Key:
    """Models a key. `head`: the next offset; a lower bound of it once the key may have vanished (`sure` False). `low`:
    no offset below is kept. `log`: every message that this key ever had, by offset. `configured`: it has a history, and
    does not vanish. `history`: the messages to keep by count; `remembered`: those of them that it has."""

    def __init__(self) -> None:
        self.head = 1
        self.low = 1
        self.sure = False
        self.configured = False
        self.history = 0
        self.remembered = 0
        self.log: dict[int, tuple[bytes, int]] = {}


class Life:
    """Models one life of a queue. `bound`: where each binding began. `todo`: offsets not known to be done, each with
    the record that made it so. `acked`: those of them that consumers acked. `ends`: where bindings ended. `bound_back`:
    the LSN and offset of each bind that began below the key's head. `idle_since_ms`: when it was declared, bound or
    consumed last, as far as the model saw."""

    def __init__(self, number: int, name: bytes, expires_after_s: int, incarnation: int) -> None:
        self.number = number
        self.name = name
        self.expires_after_s = expires_after_s
        self.options = QueueOptions()
        self.incarnation = incarnation
        self.queue_id = b""
        self.bound: dict[bytes, int] = {}
        self.ends: dict[bytes, int] = {}
        self.todo: dict[bytes, dict[int, int]] = {}
        self.acked: dict[bytes, set[int]] = {}
        self.bound_back: dict[bytes, list[tuple[int, int]]] = {}
        self.renewed_lsn = self.idle_since_ms = 0

    def owes(self, key: bytes) -> set[int]:
        """Returns the offsets that must still come to a consumer, or be acked by one."""
        return self.todo.get(key, {}).keys() - self.acked.get(key, set())


Told = Callable[[Life, bytes], None]


class Owed:
    """Models what is owed. `forgotten` is called with each binding whose messages are no longer owed, `again` with each
    binding whose messages begin anew. `lsn` and `time_ms` are the record's."""

    def __init__(self, bounds: Bounds, look: Look, forgotten: Told, again: Told) -> None:
        self.bounds = bounds
        self.look = look
        self.forgotten = forgotten
        self.again = again
        self.lsn = 0
        self.time_ms = 0
        self.lives: dict[bytes, Life] = {}
        self.keys: dict[bytes, Key] = {}
        self.owned = b"\x00"
        self.dropped: dict[bytes, int] = {}
        """The number of bindings of dropped queues that may not be gone yet, by key."""
        self.answers: dict[bytes, tuple[int, dict[int, bytes]]] = {}
        """Each producer's last sequence, and the answers that may be asked for again."""
        self.before_purge: dict[int, list[tuple[bytes, int, int]]] = {}
        """The messages that each life was owed when its last purge began: key, offset, the record that made it so."""
        self.brief: list[tuple[Life, bytes, int]] = []
        """Messages that this record first made owed, and then no longer owed: they may still be on their way."""
        self.delayed = Delayed()
        self.farewells = Farewells()
        self.deliveries = Deliveries()
        self._record = 0
        self._lives = 0
        self._incarnations: dict[bytes, int] = {}

    def owns(self, key: bytes) -> bool:
        tag = re.match(rb"@?\{([^}]+)\}", key)
        return bool(self.owned[crc32(key if tag is None else tag[1]) % len(self.owned)])

    def keeps(self, key: bytes, queues: int) -> bool:
        """Returns whether a chunk is kept that is routed to so many queues."""
        return bool(queues) or (key in self.keys and self.keys[key].configured)

    def low_max(self, key: bytes) -> int:
        """Returns the highest offset at which the log may begin: nothing that is owed is trimmed."""
        owed = [min(life.todo[key]) for life in self.lives.values() if life.todo.get(key)]
        return min([*owed, self.keys[key].head - self.keys[key].remembered])

    # Records.

    def begins(self, lsn: int, time_ms: int) -> None:
        """Notes that a record was applied which may publish."""
        self._record += 1
        self.brief = []
        self.lsn, self.time_ms = lsn, time_ms

    def changed(
        self, head: tuple[bytes, int, int], change: wire.Change, outcome: bytes | None, refused: ShoalError | None
    ) -> None:
        """Notes that a CHANGE record was applied, with this answer. Raises AssertionError for a wrong answer."""
        producer, sequence, settled = head
        last, answers = self.answers.get(producer, (0, {}))
        if any(producer):
            if sequence <= last:
                expected = answers.get(sequence)
                assert outcome == expected, f"frame {sequence} came again and is answered otherwise"
                assert refused is None or refused.code == OUT_OF_RANGE
                return
            if change.steps and change.steps[0].HasField("imports") and sequence != last + 1:
                assert refused is not None and refused.code == OUT_OF_RANGE, "an import follows a gap"
                return
        assert refused is None and outcome is not None, f"a proper frame is refused: {refused}"
        found = wire.Outcome.FromString(outcome)
        assert len(found.steps) == len(change.steps)
        for step, answer in zip(change.steps, found.steps, strict=True):
            kind = step.WhichOneof("step") or ""
            getattr(self, "_" + kind)(getattr(step, kind), answer)
        if any(producer):
            kept = {number: given for number, given in answers.items() if number > settled} | {sequence: outcome}
            self.answers[producer] = sequence, dict(sorted(kept.items())[-self.bounds.answers :])

    def maintained(self) -> None:
        """Notes that a TRIM or RECLAIM record was applied: keys without bindings and backlog may be gone."""
        for name, key in self.keys.items():
            if not any(name in life.bound or life.todo.get(name) for life in self.lives.values()):
                key.sure = key.sure and key.configured

    def acks_applied(self, life: Life, key: bytes, first: int, to: int, taken_at_lsn: int) -> None:
        """Notes that these acks are durable, except for offsets that a bind promised again after they were taken."""
        to = min([to, *(start for lsn, start in life.bound_back.get(key, ()) if lsn > taken_at_lsn)])
        todo, acked = life.todo.get(key, {}), life.acked.get(key, set())
        for offset in [offset for offset in todo if first <= offset < to]:
            assert offset in acked, f"{key!r} {offset} of {life.name!r} was acked by no consumer, and is done"
            acked.remove(offset)
            del todo[offset]

    def crashed(self) -> None:
        """Forgets acks that are in no record: a crash loses them."""
        for life in self.lives.values():
            for key, acked in life.acked.items():
                for offset in acked:
                    self.deliveries.promised_again(life, key, offset)
            life.acked.clear()
        self.deliveries.crashed()

    def _forget(self, life: Life, key: bytes) -> None:
        todo = life.todo.pop(key, {})
        self.deliveries.settled(life.number, key, set(todo))
        self.brief += [(life, key, offset) for offset, since in todo.items() if since == self._record]
        life.acked.pop(key, None)
        self.forgotten(life, key)

    # Steps.

    def _each(self, answer: wire.StepOutcome, number: int, allowed: Codes, what: object) -> bool:
        """Returns whether this request was done. Its answer must be one of those allowed."""
        found = next((refusal for refusal in answer.refusals if refusal.request == number), None)
        code = OK if found is None else found.error.code
        assert code in allowed, f"{what}: answered {found.error if found else 'ok'}, expected {allowed}"
        return code == OK

    def _declares(self, step: wire.Declares, answer: wire.StepOutcome) -> None:
        incarnations = step.incarnations or [0] * len(step.queues)
        for number, (name, incarnation) in enumerate(zip(step.queues, incarnations, strict=True)):
            life, expires = self.lives.get(name), step.options.expires_after_s
            at_home = self.owns(b"@" + name)
            allowed = {OK}
            newer = life is not None and 0 < life.incarnation < incarnation
            if incarnation and ((life is None and at_home) or (life is not None and life.incarnation > incarnation)):
                allowed = {NO_SUCH_QUEUE}
            elif life is not None and not newer and life.options != QueueOptions.of_wire(step.options):
                allowed = {CONFLICT}
            if not self._each(answer, number, allowed, ("declare", name, incarnation)):
                continue
            if life is None or newer:
                self.end(name)
                life = self._begin(name, expires, incarnation, answer.offsets[number])
                life.options = QueueOptions.of_wire(step.options)
                self.deliveries.begins(life)
            life.incarnation = life.incarnation or incarnation
            life.renewed_lsn, life.idle_since_ms = self.lsn, self.time_ms
            assert answer.offsets[number] == life.incarnation

    def _begin(self, name: bytes, expires_after_s: int, asked: int, given: int) -> Life:
        self._lives += 1
        before = self._incarnations.get(name, 0)
        if asked or not self.owns(b"@" + name):
            assert given == asked, f"{name!r} gets incarnation {given}, not {asked}"
        else:
            assert given > before, f"{name!r} gets incarnation {given} after {before}"
            self._incarnations[name] = given
        life = self.lives[name] = Life(self._lives, name, expires_after_s, given)
        return life

    def end(self, name: bytes) -> None:
        self.farewells.kept.pop(name, None)
        life = self.lives.pop(name, None)
        if life is None:
            return
        for key in life.bound:
            if key != b"@" + name:
                self.dropped[key] = self.dropped.get(key, 0) + 1
        for key in list(life.todo):
            self._forget(life, key)

    def _drops(self, step: wire.Drops, answer: wire.StepOutcome) -> None:
        incarnations = step.incarnations or [0] * len(step.queues)
        for number, (name, incarnation) in enumerate(zip(step.queues, incarnations, strict=True)):
            life = self.lives.get(name)
            used = life is not None and step.if_unused and incarnation == IN_USE
            allowed: Codes = {CONFLICT if used else NO_SUCH_QUEUE}
            if life is not None and incarnation != IN_USE and (not incarnation or life.incarnation in (0, incarnation)):
                allowed = {CONFLICT if step.if_empty and any(life.todo.values()) else OK}
            if self._each(answer, number, allowed, ("drop", name, incarnation, step.if_unused, step.if_empty)):
                assert answer.offsets[number] == (life.incarnation if life else 0)
                self.end(name)

    def _refusals(self, name: bytes, keys: list[bytes]) -> Codes:
        """Returns why any request for this queue and these keys must be refused."""
        codes: Codes = set() if name in self.lives else {NO_SUCH_QUEUE}
        return codes if all(map(self.owns, keys)) else codes | {NOT_OWNER}

    def _limited_binds(self, step: wire.LimitedBinds, answer: wire.StepOutcome) -> None:
        self._binds(step.binds, answer, frozenset(step.no_room))

    def _binds(self, step: wire.Binds, answer: wire.StepOutcome, no_room: Set[bytes] = frozenset()) -> None:
        position = 0
        for number, (name, count) in enumerate(zip(step.queues, step.key_counts, strict=True)):
            keys = list(step.keys[position : position + count])
            offsets = answer.offsets[position : position + count]
            position += count
            starts = dict.fromkeys(keys, step.start_value if step.start == wire.START_OFFSET else None)
            allowed = self._refusals(name, keys) or self._bindable(self.lives[name], starts)
            if name in no_room and name in self.lives and not self.lives[name].bound.keys() >= starts.keys():
                allowed = self._refusals(name, keys) or {EXHAUSTED}
            if not self._each(answer, number, allowed, ("bind", name, keys, step.start, step.start_value)):
                continue
            if count:
                self.lives[name].renewed_lsn, self.lives[name].idle_since_ms = self.lsn, self.time_ms
            for key, offset in zip(keys, offsets, strict=True):
                self._bind(self.lives[name], key, offset, step.start, step.start_value)

    def _bindable(self, life: Life | None, starts: Mapping[bytes, int | None], exact: bool = False) -> Codes:
        """Returns the allowed answers to a bind of these keys, each from now or from an offset; `exact`: from that and
        no other, as imports are."""
        new = {key: start for key, start in starts.items() if life is None or key not in life.bound}
        if len(new) + (len(life.bound) if life else 0) > self.bounds.bindings:
            return {EXHAUSTED}
        too_many = life is not None and any(self.done_ranges(life, key) >= self.bounds.away_ranges for key in new)
        allowed = {EXHAUSTED if too_many else OK}  # Which of two errors is told depends on the order of the keys.
        for name, start in new.items():
            key = self.keys.setdefault(name, Key())
            if start is not None:
                if not key.sure or start > key.head:
                    allowed.add(OUT_OF_RANGE)
                if start > key.head and key.sure:
                    allowed.discard(OK)
                if exact and start < self.low_max(name):
                    allowed.add(OUT_OF_RANGE)
                if exact and start < key.low:
                    allowed.discard(OK)
        return allowed

    def done_ranges(self, life: Life, key: bytes) -> int:
        """Returns the number of done ranges above the lowest offset that is owed."""
        todo = sorted(life.todo.get(key, ()))
        end = self.keys[key].head if key in life.bound else life.ends.get(key, 0)
        return sum(low + 1 < high for low, high in zip(todo, [*todo[1:], end], strict=True)) if todo else 0

    def _bind(self, life: Life, name: bytes, offset: int, start: int, value: int) -> None:
        key = self.keys.setdefault(name, Key())
        if name in life.bound:
            assert offset == life.bound[name], f"bind again answers {offset}, before {life.bound[name]}"
            return
        low, low_max = key.low, self.low_max(name)
        if not key.sure:
            low_max = max(low_max, offset)
        if start == wire.START_UNSPECIFIED:
            assert offset == key.head if key.sure else offset >= key.head, f"bound from {offset}, not {key.head}"
        elif start == wire.START_EARLIEST:
            assert low <= offset <= low_max, f"earliest is {offset}, the log begins at {low} to {low_max}"
            key.low = offset
        elif start == wire.START_LAST:
            first = key.head - value
            assert max(low, first) <= offset <= max(low_max, first), f"last {value} is {offset} of {key.head}"
        elif start == wire.START_AGE:
            recent = [at for at, (_, sent_ms) in key.log.items() if sent_ms >= self.time_ms - value]
            first = min(recent, default=key.head)
            assert max(low, first) <= offset <= max(low_max, first), f"{value} ms ago is {offset}, not {first}"
        else:
            assert max(low, value) <= offset <= max(low_max, value), f"offset {value} begins at {offset}"
        key.head, key.sure = max(key.head, offset), True
        life.bound[name] = offset
        if offset < key.head:
            self._see_again(life, name, offset)

    def _see_again(self, life: Life, name: bytes, offset: int) -> None:
        """Makes every message from a new binding's start on owed, also those that were done before."""
        todo, acked = life.todo.setdefault(name, {}), life.acked.get(name, set())
        for seen in range(offset, self.keys[name].head):
            if seen not in life.owes(name):
                self.deliveries.promised_again(life, name, seen)
            todo[seen] = self._record
            acked.discard(seen)
        life.bound_back.setdefault(name, []).append((self.lsn, offset))
        self.again(life, name)

    def _unbinds(self, step: wire.Unbinds, answer: wire.StepOutcome) -> None:
        position = 0
        for number, (name, count) in enumerate(zip(step.queues, step.key_counts, strict=True)):
            keys = list(step.keys[position : position + count])
            offsets = answer.offsets[position : position + count]
            position += count
            if not self._each(answer, number, self._refusals(name, keys) or {OK}, ("unbind", name, keys)):
                continue
            life = self.lives[name]
            for key, offset in zip(keys, offsets, strict=True):
                bound = life.bound.pop(key, None)
                assert offset == (0 if bound is None else self.keys[key].head), f"unbound {key!r} at {offset}"
                if bound is not None:
                    life.ends[key] = offset
                if step.discard:
                    self._forget(life, key)

    def _publishes(self, step: wire.Publishes, answer: wire.StepOutcome) -> None:
        columns = zip(step.keys, step.chunks, answer.offsets, answer.queues, strict=True)
        for number, (name, chunk, first, queues) in enumerate(columns):
            life = self.lives.get(name[1:]) if name[:1] == b"@" else None
            routed = bool(life) or any(name in life.bound for life in self.lives.values())
            allowed = {OK} if routed or not step.mandatory or self.dropped.get(name) else set()
            if not routed and step.mandatory:
                allowed.add(UNROUTABLE)
            if not self._each(answer, number, allowed if self.owns(name) else {NOT_OWNER}, ("publish", name)):
                continue
            if step.not_before_ms:
                assert not first and not queues, "a delayed publish has no offset yet"
                self.delayed.accept(name, chunk, step.not_before_ms)
            else:
                self.published(name, chunk, first, queues)

    def published(self, name: bytes, chunk: bytes, first: int, queues: int) -> None:
        """Notes that a chunk was published: it got the offsets from `first` on, and was routed to so many queues."""
        life = self.lives.get(name[1:]) if name[:1] == b"@" else None
        if life is not None and name not in life.bound:
            self._bind(life, name, first, wire.START_UNSPECIFIED, 0)
        bound = [life for life in self.lives.values() if name in life.bound]
        most = len(bound) + self.dropped.get(name, 0)
        assert len(bound) <= queues <= most, f"routed to {queues} queues, not {len(bound)} to {most}"
        assert bool(first) == self.keeps(name, queues), "kept for no queue, or not kept for some"
        if first:
            self._append(name, first, list(parse_chunk(chunk).bodies), bound)

    def _append(self, name: bytes, first: int, bodies: list[bytes], bound: list[Life]) -> None:
        key = self.keys.setdefault(name, Key())
        assert first == key.head if key.sure else first >= key.head, f"{name!r} goes on at {first}, not {key.head}"
        for offset, body in enumerate(bodies, first):
            assert offset not in key.log, f"({name!r}, {offset}) names two messages"
            key.log[offset] = body, self.time_ms
            for life in bound:
                life.todo.setdefault(name, {})[offset] = self._record
        key.head = first + len(bodies)
        key.sure = key.sure or key.configured
        key.remembered = min(key.history, key.remembered + len(bodies))

    def _configures(self, step: wire.Configures, answer: wire.StepOutcome) -> None:
        for number, name in enumerate(step.keys):
            if not self._each(answer, number, {OK} if self.owns(name) else {NOT_OWNER}, ("configure", name)):
                continue
            key = self.keys.setdefault(name, Key())
            key.history, key.configured = step.options.history_messages, bool(step.options.ListFields())
            key.remembered = min(key.history, key.remembered)
        self.maintained()  # A key without options may vanish at once.

    def _farewells(self, step: wire.Farewells, answer: wire.StepOutcome) -> None:
        for number, name in enumerate(step.queues):
            allowed: Codes = {NOT_OWNER}
            if self.owns(b"@" + name):
                allowed = self._refusals(name, []) or {OK}
            if self._each(answer, number, allowed, ("farewell", name)):
                self.farewells.changed(self, number, step)

    def _purges(self, step: wire.Purges, answer: wire.StepOutcome) -> None:
        """Checks a purge. Where it leaves a part, the slice chooses the keys that it purges; each of them wholly."""
        positions = step.positions or [0] * len(step.queues)
        for number, (name, position) in enumerate(zip(step.queues, positions, strict=True)):
            if not self._each(answer, number, self._refusals(name, []) or {OK}, ("purge", name)):
                continue
            life = self.lives[name]
            if not position:
                self.before_purge[life.number] = [
                    (key, offset, since) for key, todo in life.todo.items() for offset, since in todo.items()
                ]
            whole = not position and not answer.positions[number]
            depths = {} if whole else self.look.depths(name)
            dropped = 0
            for key in [key for key, todo in life.todo.items() if todo]:
                left, owed = depths.get(key, 0), len(life.todo[key])
                assert left in (0, owed), f"a purge left {left} of {owed} messages of {key!r}"
                if not left:
                    dropped += owed
                    self._forget(life, key)
            assert dropped == answer.messages[number], f"a purge of {dropped} says {answer.messages[number]}"

    def _imports(self, step: wire.Imports, answer: wire.StepOutcome) -> None:
        position = queues = bindings = 0
        starts = list(step.starts) or [0] * len(step.keys)
        for number, (name, count) in enumerate(zip(step.queues, step.key_counts, strict=True)):
            wanted = dict(zip(step.keys[position : position + count], starts[position:], strict=False))
            position += count
            life = self.lives.get(name)
            allowed = self._refusals(name, list(wanted)) - {NO_SUCH_QUEUE}
            allowed = allowed or self._bindable(life, {key: start or None for key, start in wanted.items()}, exact=True)
            if not self._each(answer, number, allowed, ("import", name, wanted)):
                continue
            if life is None:
                life = self._begin(name, 0, 0, self.look.incarnation(name))
                queues += 1
            for key, start in wanted.items():
                bindings += key not in life.bound
                if key not in life.bound:
                    how = wire.START_OFFSET if start else wire.START_UNSPECIFIED
                    self._bind(life, key, start or self.look.key(key).head, how, start)
        assert (answer.queues_made, answer.bindings_made) == (queues, bindings), "an import counts wrong"
