"""A queue's lives: incarnations at its home, parts that follow them, drops that mean one of them."""

from __future__ import annotations

from shoal_contract.errors import Conflict, NoSuchQueue, ShoalError, from_wire
from shoal_contract.names import direct_key
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import Kind, encode_ownership
from shoal_slice_node.core.limits import ATTACHED_PER_STEP
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.turns import finish

from .core_driver import PARTITIONS, CoreDriver, bind, declare, drop, publish

HERE = next(f"q{n}" for n in range(99) if partition_of(direct_key(b"q%d" % n), PARTITIONS) == 0)
"""A queue whose home is a slice that owns partition 0."""


def elsewhere() -> CoreDriver:
    """A slice that owns every partition but that of the queue's home."""
    core = CoreDriver()
    core.record(Kind.OWNERSHIP, encode_ownership(2, b"\x00" + b"\x01" * (PARTITIONS - 1)))
    return core


def part(queue: str, incarnation: int, expires_after_s: int = 0) -> wire.Step:
    step = declare(queue, expires_after_s=expires_after_s)
    step.declares.incarnations.append(incarnation)
    return step


def drop_of(queue: str, incarnation: int) -> wire.Step:
    return wire.Step(drops=wire.Drops(queues=[queue.encode()], incarnations=[incarnation]))


def incarnation(core: CoreDriver, *steps: wire.Step) -> int:
    """That a declare, the last of the steps, is answered with."""
    step = core.change(*steps).steps[-1]
    assert not step.refusals
    return step.offsets[0]


def refused(core: CoreDriver, step: wire.Step) -> ShoalError:
    outcome = core.change(step).steps[0]
    return from_wire(outcome.refusals[0].error)


def bound(core: CoreDriver, queue: str) -> int:
    found = core.state.load_queue(queue.encode())
    return -1 if found is None else found.bindings


KEY = next(f"k{n}" for n in range(99) if partition_of(b"k%d" % n, PARTITIONS) != 0)


def test_a_home_gives_each_life_a_number_that_grows() -> None:
    core = CoreDriver()
    first = incarnation(core, declare(HERE))
    assert first and incarnation(core, declare(HERE)) == first, "as long as it lives"
    second = incarnation(core, drop(HERE), declare(HERE))
    assert second > first
    core.state.begin_epoch(9)
    assert incarnation(core, drop(HERE), declare(HERE)) > second


def test_a_part_takes_the_life_that_its_home_gave_and_follows_to_the_next() -> None:
    core = elsewhere()
    assert incarnation(core, part(HERE, 7)) == 7
    core.change(bind(HERE, KEY), publish(KEY, b"for the first life"))
    assert incarnation(core, part(HERE, 7)) == 7 and bound(core, HERE) == 1
    assert incarnation(core, part(HERE, 9)) == 9 and bound(core, HERE) == 0, "another queue: nothing is left of the old"
    core.settle()
    core.check()


def test_a_late_declare_of_an_older_life_brings_nothing_back() -> None:
    core = elsewhere()
    core.change(part(HERE, 9), bind(HERE, KEY))
    error = refused(core, part(HERE, 7))
    assert isinstance(error, NoSuchQueue) and error.value == 7 and bound(core, HERE) == 1
    home = CoreDriver()
    old = incarnation(home, declare(HERE))
    home.change(drop(HERE))
    assert isinstance(refused(home, part(HERE, old)), NoSuchQueue), "the home knows that it is over"
    assert bound(home, HERE) == -1


def test_a_part_without_a_life_gets_one() -> None:
    """Made by an import, or by a client that does not say."""
    core = elsewhere()
    assert incarnation(core, declare(HERE)) == 0
    core.change(bind(HERE, KEY))
    assert incarnation(core, part(HERE, 7)) == 7 and bound(core, HERE) == 1


def test_options_of_another_queue_are_a_conflict_in_its_own_life_only() -> None:
    core = elsewhere()
    core.change(part(HERE, 7, expires_after_s=60))
    assert isinstance(refused(core, part(HERE, 7)), Conflict)
    assert incarnation(core, part(HERE, 9)) == 9


def test_a_drop_ends_the_life_that_it_means_and_no_other() -> None:
    core = elsewhere()
    core.change(part(HERE, 9), bind(HERE, KEY))
    assert isinstance(refused(core, drop_of(HERE, 7)), NoSuchQueue) and bound(core, HERE) == 1
    core.change(drop_of(HERE, 9))
    assert bound(core, HERE) == -1
    core.change(declare(HERE))
    core.change(drop_of(HERE, 9))
    assert bound(core, HERE) == -1, "a part of no known life goes with any"


def test_sessions_are_told_that_a_handle_begins_anew() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", KEY))
    first = core.dispatcher.attach(session, b"q", 5, 100, 1 << 20).part
    core.change(publish(KEY, b"of the first life"))
    assert len(core.take(session)) == 1 and not session.resets
    core.change(drop("q"), declare("q"), bind("q", KEY), publish(KEY, b"of the second"))
    assert list(session.resets) == [5] and core.dispatcher.dirty
    assert [body for _, _, body in core.take(session)] == [b"of the second"]
    assert core.dispatcher.attach(session, b"q", 5, 100, 1 << 20).part > first
    core.change(drop("q"))
    assert session.awaited == {5: b"q"}
    core.change(declare("q"))
    assert not session.awaited, "attached again as soon as it is there"


def test_a_session_is_told_the_life_of_a_part_that_came_after_its_attach() -> None:
    """As an answer to an attach tells it: a client that does not know it takes it for another life later."""
    core = CoreDriver()
    session, later = core.session(), core.session()
    assert not core.attach(session, HERE, 1), "there is no part yet"
    core.change(declare(HERE))
    core.pump()
    told = session.take_new_parts(10)
    life = core.dispatcher.attach(later, HERE.encode(), 1, 10, 100).part
    assert life and {handle: part.life for handle, part in told.items()} == {1: life}
    core.change(drop(HERE), declare(HERE))
    core.pump()
    second = session.take_new_parts(10)[1].life
    assert second not in (0, life) and list(session.resets) == [1]
    assert session.new_parts == {}


def test_an_attach_is_answered_with_the_lives_that_are_there_at_its_end() -> None:
    """Queues that are dropped, declared anew, or come while many are attached in turns."""
    core = CoreDriver()
    names = [f"n{number}" for number in range(3 * ATTACHED_PER_STEP)]
    core.declare(names[:-1])
    session = core.session()
    request = wire.Attach(queues=[name.encode() for name in names], handles=range(1, len(names) + 1))
    work = requests.attach(core.node, session, request)()
    next(work)
    core.change(drop(names[0], names[1]), declare(names[0], names[-1]))
    core.pump()
    answer = finish(work).attached
    here = [core.tables.queue_by_name.get(name.encode()) for name in names]
    assert list(answer.lives) == [0 if found is None else int.from_bytes(found, "big") for found in here]
    assert list(answer.absent) == [2]
