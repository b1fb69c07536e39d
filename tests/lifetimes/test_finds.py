"""Proves that the fuzzer of lifetimes finds defects: small ones are put into the core, and each must be found within a
number of runs. A fuzzer that misses one of them fails here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from shoal_contract.journal_record import Record
from shoal_slice_node.core.apply import binds, due, farewells, key_options, retries, transients, trims
from shoal_slice_node.core.apply.backlog import LogMeasure
from shoal_slice_node.core.apply.records import Kind
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.background import due_list, trimmer
from shoal_slice_node.core.background.job import DueJob
from shoal_slice_node.core.dispatch import filling, sessions
from shoal_slice_node.core.dispatch.acks_in_flight import AcksInFlight
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.exclusive import Exclusives
from shoal_slice_node.core.dispatch.leases import Lease, LeaseClock
from shoal_slice_node.core.dispatch.left_clock import LeftClock
from shoal_slice_node.core.dispatch.stretches import Resting
from shoal_slice_node.core.dispatch.undecided import Undecided
from shoal_slice_node.core.read import reading
from shoal_slice_node.core.read.binding_walk import Binding
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.verbs import applying, engine
from shoal_slice_node.core.verbs.changes import Checked
from tests.fuzzing import Case
from tests.lifetimes.runs import attempt, plan

RUNS_TO_FIND = 120


class Defect(NamedTuple):
    """A defect. `make` takes the function `name` of `owner` and returns its replacement. It is found within
    RUNS_TO_FIND runs, from `first` on: those that few runs find begin nearer to one that does, to save time. `also`:
    another place that has the function."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    first: int = 0
    also: Any = None


def nothing(_: Any) -> Any:
    return lambda *_, **__: None


def told(times: int) -> Callable[[Any], Any]:
    """Returns what makes a `pass_over` that tells each gap so many times."""

    def make(before: Any) -> Any:
        def pass_over(
            registry: Any, stream: Any, first: int, to: int, why: Any, pick: Any, tell: Any, lease_of: Any
        ) -> Any:
            def tells(*arguments: Any) -> None:
                for _ in range(times):
                    tell(*arguments)

            return before(registry, stream, first, to, why, pick, tells, lease_of)

        return pass_over

    return make


def drops_more(before: Any) -> Any:
    def low_with_room(tables: Any, key: Any, measure: Any) -> int:
        low: int = before(tables, key, measure)
        return min(low + 1, key.head) if low > key.low else low

    return low_with_room


def says_newer(_: Any) -> Any:
    return lambda state, queue_id, farewell, number, _: farewells._say(state, queue_id, farewell, number)


def full_at(part: float) -> Callable[[Any], Any]:
    """Returns what makes a check by which a key that refuses what it has no room for is full at such a part of its
    capacity."""

    def make(before: Any) -> Any:
        def check_capacity(state: Any, full_name: bytes, key: Any, measure: tuple[int, int]) -> None:
            before(state, full_name, key, measure)
            messages = key.options.capacity_messages
            if messages and not key.options.drops_oldest and key.head - key.low + measure[0] > part * messages:
                raise key_options._full(state, full_name, "messages", messages, messages)

        return check_capacity

    return make


def one_later(before: Any) -> Any:
    return lambda *arguments: before(*arguments) + 1


def early_by_400(due_time: Any) -> Any:
    return lambda row_key: due_time(row_key) - 400


# Checkpoints and crashes.


def without_details(pieces: Any) -> Any:
    def some(delta: Delta) -> Iterator[Any]:
        return (piece for piece in pieces(delta) if piece[1] != "detail")

    return some


def part_counts_twice(before: Any) -> Any:
    def save_part(state: State) -> None:
        state.add_totals(state.effects)
        before(state)

    return save_part


def replay_skips(kind: Kind) -> Callable[[Any], Any]:
    """Returns what makes an apply that skips such records for an engine without a dispatcher, which a replay has."""

    def make(apply: Any) -> Any:
        def applied(state: State, record: Record, checked: Checked | None = None) -> Iterator[None]:
            if record.kind != kind or state.interest.queues:
                yield from apply(state, record, checked)

        return applied

    return make


# What comes back.


def a_third_of_the_time(_: Any) -> Any:
    return lambda lease, now_ms: setattr(lease, "until_ms", now_ms + lease.lease_ms // 3)


def never_begun(_: Any) -> Any:
    return lambda clock, _: clock._open.clear()


def always_seen(nack: Any) -> Any:
    return lambda acks, attachment, key_id, first, to, terms, lists: nack(
        acks, attachment, key_id, first, to, terms._replace(unseen=False), lists
    )


def one_time_more(copy_of: Any) -> Any:
    return lambda chunk, index, death: copy_of(chunk, index, death._replace(times=death.times + 1))


def for_another_reason(copy_of: Any) -> Any:
    return lambda chunk, index, death: copy_of(chunk, index, death._replace(reason=1 + death.reason % 3))


def forgets_what_has_no_room(put_back: Any) -> Any:
    return lambda line, waiting, first: None if first else put_back(line, waiting, first)


def next_before_again(give_again: Any) -> Any:
    return lambda filling: filling.give_next() and give_again(filling)


def delay_ends_early(begin_delay: Any) -> Any:
    return lambda resting, due_ms: begin_delay(resting, due_ms - 300)


DEFECTS = {
    "what has expired is delivered": Defect(filling, "has_expired", lambda _: lambda *_: False, also=sessions),
    "what has expired is delivered for a while": Defect(
        filling, "has_expired", lambda _: lambda end, at: 0 < end <= at - 400, also=sessions
    ),
    "a gap is not told": Defect(filling, "pass_over", told(0)),
    "a gap is told twice": Defect(filling, "pass_over", told(2)),
    "a farewell comes early": Defect(LeftClock, "due", lambda due: lambda clock, now_ms: due(clock, now_ms + 700)),
    "a queue's time does not begin when it is left": Defect(LeftClock, "left", nothing, first=35),
    "a queue's time does not begin anew": Defect(LeftClock, "anew", nothing),
    "a record that was not written is not decided again": Defect(LeftClock, "again", nothing, first=18),
    "a new leader begins no times": Defect(LeftClock, "begin", nothing, first=5),
    "a queue's end says no farewell": Defect(transients, "say_at_end", nothing, first=25),
    "a farewell that is set anew is said at once": Defect(farewells, "_say_unless_newer", says_newer),
    "a time that began anew is not heard": Defect(LeftClock, "began_anew", lambda _: lambda *_: False),
    "a farewell stays that is taken back": Defect(farewells, "forget_farewell", nothing),
    "more is dropped than must be": Defect(key_options, "_low_with_room", drops_more),
    "a key takes more than its capacity": Defect(key_options, "_check_capacity", nothing),
    "a key refuses everything": Defect(key_options, "_check_capacity", full_at(0)),
    "a key is full at half of its capacity": Defect(key_options, "_check_capacity", full_at(0.5)),
    "several sessions have an exclusive queue": Defect(Exclusives, "of", nothing, first=19),
    "a delayed publish comes early": Defect(due, "due_time", early_by_400, also=due_list),
    "what the disk refused is never due again": Defect(DueJob, "refused", nothing),
    # Checkpoints and crashes.
    "a checkpoint leaves out rows": Defect(Delta, "pieces", without_details),
    "a start counts a part of a record twice": Defect(State, "save_part", part_counts_twice),
    "replay skips acks": Defect(engine, "apply_record", replay_skips(Kind.ACKS)),
    "replay skips retries": Defect(engine, "apply_record", replay_skips(Kind.RETRY)),
    "a repeated frame is done again": Defect(applying, "repeated_answer", nothing),
    # Histories.
    "a history has one message fewer": Defect(trims, "history_floor", one_later, also=trimmer),
    "a bind from a time begins later": Defect(binds, "_start", one_later),
    # Ack timeouts, nacks, dead letters.
    "an ack timeout ends early": Defect(Lease, "begin", a_third_of_the_time),
    "ack timeouts never end": Defect(LeaseClock, "begin_open", never_begun, first=20),
    "a nack's delay ends early": Defect(Resting, "begin_delay", delay_ends_early, first=70),
    "what no program was given counts as delivered": Defect(AcksInFlight, "nack", always_seen),
    "counts of deliveries are not kept": Defect(retries._Retrying, "_count", lambda _: staticmethod(lambda *_: False)),
    "a dead letter has no copy": Defect(retries, "copy_of", nothing),
    "a copy says a wrong count": Defect(retries, "copy_of", one_time_more),
    "a copy says another reason": Defect(retries, "copy_of", for_another_reason),
    "what has expired is copied": Defect(retries, "has_expired", lambda _: lambda *_: False, first=28),
    "what a record has no room for is forgotten": Defect(Undecided, "put_back", forgets_what_has_no_room, first=180),
    # Depth, order, windows.
    "depth counts one too few": Defect(
        Binding, "backlog", lambda of: lambda binding, end: max(0, of(binding, end) - 1)
    ),
    "depth counts what was dropped": Defect(Binding, "kept_from", lambda _: lambda binding, low: binding),
    "depth has no bytes": Defect(LogMeasure, "bytes_between", lambda _: lambda *_: 0, first=30),
    "the oldest message is the first that was published": Defect(
        LogMeasure, "time_of", lambda of: lambda measure, offset: of(measure, 1) or of(measure, offset)
    ),
    "a peek shows what has expired": Defect(reading, "has_expired", lambda _: lambda *_: False),
    "what is given again comes in another order": Defect(filling._Filling, "give_again", next_before_again),
    "a window has one message more": Defect(
        Attachment, "room_for", lambda of: lambda one, messages, body_bytes: of(one, messages, body_bytes) + 1
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, make, first, also = DEFECTS[name]
    for place in (owner, also) if also else (owner,):
        monkeypatch.setattr(place, function, make(getattr(place, function)))
    for seed in range(first, first + RUNS_TO_FIND):
        failure = attempt(plan(Case(seed)))
        if failure is not None:
            return
    pytest.fail(f"not found in {RUNS_TO_FIND} runs: {name}")
