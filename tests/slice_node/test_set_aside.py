"""Records that an operator set aside: what they published is lost, and everything behind it stays where it was."""

from __future__ import annotations

from random import Random

import pytest

from shoal_contract.errors import NoSuchQueue
from shoal_contract.journal_record import SET_ASIDE, Record
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.publishes import publish as published
from shoal_slice_node.core.apply.records import ChangeHead
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.verbs import set_aside as module

from .core_driver import CoreDriver, acks, bind, configure, declare, publish
from .memory_base import MemoryBase


def replayed(records: list[Record], *aside: int) -> CoreDriver:
    """What a start makes of these records, some of which are set aside, by LSN."""
    core = CoreDriver(Delta(MemoryBase()))
    for record in records[1:]:
        flags = SET_ASIDE if record.lsn in aside else 0
        effects = core.engine.apply(record._replace(flags=flags))
        assert effects.set_aside == bool(flags)
        core.check()
    core.now_ms = core.state.time_ms + 1_000 - core.wall_ahead_ms
    core.restart()
    core.dispatcher.registry.tell_time(core.wall_ms)
    return core


def pulled(core: CoreDriver, queue: str = "q") -> list[tuple[int, int]]:
    """The ranges of offsets that a consumer still gets."""
    return [(one.low, one.to) for one in core.pull(core.session(), queue, 1_000)]


def told(core: CoreDriver) -> list[tuple[int, int]]:
    return [(gap.first, gap.to) for gap in core.gaps]


def lsn_of(core: CoreDriver, *steps: wire.Step, head: ChangeHead | None = None) -> int:
    core.change(*steps, head=head)
    return core.state.lsn


def test_what_was_published_behind_it_keeps_its_offsets_and_acks() -> None:
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k"))
    live.change(publish("k", b"first"))
    aside = lsn_of(live, publish("k", b"lost", b"lost"))
    for body in (b"acked", b"kept"):
        live.change(publish("k", body))
    live.change(acks(("q", "k", 4, 5)))
    core = replayed(live.records, aside)
    assert pulled(core) == [(1, 2), (5, 6)]
    assert told(core) == [(2, 4)]
    assert core.change(publish("k", b"next")).steps[0].offsets == [6]


def test_its_messages_are_over_at_once_even_if_the_clock_is_behind() -> None:
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k"))
    aside = lsn_of(live, publish("k", b"lost"))
    core = replayed(live.records, aside)
    core.now_ms -= 1_000_000
    core.restart()
    core.dispatcher.registry.tell_time(core.wall_ms)
    assert pulled(core) == []
    assert told(core) == [(1, 2)]


def test_publishes_that_were_to_come_later_and_repeats_took_no_offsets() -> None:
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k"))
    later = lsn_of(live, publish("k", b"later", not_before_ms=live.wall_ms + 1_000_000))
    head = ChangeHead(b"p" * 16, 1, 0)
    live.change(publish("k", b"once"), head=head)
    repeat = lsn_of(live, publish("k", b"once"), head=head)
    live.change(publish("k", b"next"))
    core = replayed(live.records, later, repeat)
    assert pulled(core) == [(1, 2), (2, 3)] and told(core) == []


def test_what_capacities_refused_then_is_refused_again() -> None:
    live = CoreDriver()
    live.change(declare("q"), configure("k", KeyOptions(capacity_messages=2, policy="reject")), bind("q", "k"))
    live.change(publish("k", b"first"))
    aside = [lsn_of(live, publish("k", b"2")), lsn_of(live, publish("k", b"refused"))]
    live.change(acks(("q", "k", 1, 2)))
    live.settle()
    assert live.change(publish("k", b"third")).steps[0].offsets == [3]
    core = replayed(live.records, *aside)
    assert pulled(core) == [(3, 4)]


def test_a_transaction_that_was_refused_took_no_offsets() -> None:
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k"))
    lsns = []
    for queue in ("none", "q"):
        try:
            live.change(publish("k", b"x"), bind(queue, "l"), atomic=True)
        except NoSuchQueue:
            pass
        lsns.append(live.state.lsn)
    assert live.change(publish("k", b"kept")).steps[0].offsets == [2]
    core = replayed(live.records, *lsns)
    assert pulled(core) == [(2, 3)] and told(core) == [(1, 2)]


def test_what_fails_here_too_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k", "l"))
    aside = lsn_of(live, publish("k", b"lost"), publish("l", b"lost"))

    def failing(state: object, key: bytes, *others: object, **named: object) -> object:
        if key == b"k":
            raise RuntimeError("a defect")
        return published(state, key, *others, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "publish", failing)
    core = replayed(live.records, aside)
    assert core.change(publish("k", b"x"), publish("l", b"x")).steps[0].offsets == [1]
    assert told(core) == [] and pulled(core) == [(1, 2), (2, 3)]


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_set_aside_all_other_messages_keep_their_places(seed: int) -> None:
    """Each publish of a history is set aside alone: the rest has its offsets, and the tables are sound."""
    random = Random(seed)
    live = CoreDriver()
    live.change(declare("q", "r"), bind("q", "a", "b"), bind("r", "b"))
    by_lsn: dict[int, set[tuple[str, int]]] = {}
    for number in range(24):
        key = random.choice("ab")
        count = random.randint(1, 3)
        offsets = live.change(publish(key, *[b"%d" % number] * count)).steps[0].offsets
        by_lsn[live.state.lsn] = {(key, offset) for offset in range(offsets[0], offsets[0] + count)}
        if random.random() < 0.4:
            key, offset = random.choice(sorted(set().union(*by_lsn.values())))
            live.change(acks(("q", key, offset, offset + 1)))

    def left(core: CoreDriver) -> set[tuple[str, int]]:
        found = core.pull(core.session(), "q", 1_000)
        return {(one.key.decode(), offset) for one in found for offset in range(one.low, one.to)}

    whole = left(replayed(live.records))
    for lsn, messages in by_lsn.items():
        assert left(replayed(live.records, lsn)) == whole - messages
