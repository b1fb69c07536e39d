"""Submits the requests of sessions and unary calls to a broker: changes, and work in turns with room for its answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.answer_room import Reservation
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import LARGE_ANSWER_BYTES
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.producers import kept_answer
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.node.live_changes import publish_live
from shoal_slice_node.core.node.requests import Read, as_shoal_error
from shoal_slice_node.core.turns import Source, Work
from shoal_slice_node.core.verbs.atomic import refusal_of
from shoal_slice_node.core.verbs.changes import Checked

Answered = Callable[[wire.Answer], None]


def _always_done() -> None:
    raise AssertionError("work that is not a read has no answer")


def submit_change(
    broker: Broker,
    source: Source,
    head: ChangeHead,
    data: bytes,
    checked: Checked,
    answer: Answered,
    large_bytes: int = 0,
    session: Session | None = None,
) -> None:
    """Journals and applies a change. `answer` is called once the change is durable and applied. `checked`: the parsed
    form of `data`. `large_bytes`: the bytes that it holds in the room of large frames. `session`: whose change it is;
    None: of a unary call.

    Raises ResourceExhausted while the slice takes no changes.
    """
    if checked.live:
        _submit_live(broker, source, head.sequence, len(data), checked, answer, large_bytes)
        return
    if broker.refuses and _answer_again(broker, source, head, checked, answer):
        if large_bytes:
            broker.commit_loop.large_frames.give(large_bytes)
        return
    broker.check_takes_changes(checked.frees)
    sequence = head.sequence

    def applied(effects: Effects) -> None:
        if effects.refused is not None:
            answer(broker.refusal(sequence, effects.refused))
            return
        assert effects.outcome is not None
        consumed = None
        if effects.published:
            count = broker.dispatcher.consumed_of_key
            consumed = [0 if routed is None else count(*routed) for routed in effects.published]
        answer(wire.Answer(sequence=sequence, outcome=effects.outcome, consumed=consumed))

    def failed(error: ShoalError) -> None:
        answer(broker.refusal(sequence, error))

    item = Item(Kind.CHANGE, encode_change(head, data), applied, failed, checked, checked.operations, large_bytes)
    if session is not None and checked.leader_decides:
        item.attaches_before = session.asked.so_far()
    broker.commit_loop.submit(item, source.connection)


def _answer_again(broker: Broker, source: Source, head: ChangeHead, checked: Checked, answer: Answered) -> bool:
    """Answers a change that was applied before, in its turn, without a record: a client that asks again while no
    changes are taken must not believe that it was not done. Returns False if it was not."""
    outcome = None if head.producer == NO_PRODUCER else kept_answer(broker.state, head)
    if outcome is None:
        return False
    sequence, refused = head.sequence, refusal_of(outcome) if checked.change.atomic else None
    found = wire.Answer(sequence=sequence, outcome=outcome) if refused is None else broker.refusal(sequence, refused)
    again = Item(0, None, lambda _: answer(found), lambda error: answer(broker.refusal(sequence, error)))
    broker.commit_loop.submit(again, source.connection)
    return True


def _submit_live(
    broker: Broker,
    source: Source,
    sequence: int,
    size_bytes: int,
    checked: Checked,
    answer: Answered,
    large_bytes: int,
) -> None:
    """Does live publishes in their place among the changes of their source. They need no room in the journal."""
    found = wire.Answer(sequence=sequence)
    item = Item(
        0,
        None,
        lambda _: answer(found),
        lambda error: answer(broker.refusal(sequence, error)),
        operations=checked.operations,
        large_bytes=large_bytes,
        work=lambda: publish_live(broker.node, checked, found),
        work_bytes=size_bytes,
    )
    broker.commit_loop.submit(item, source.connection)


def submit_work(
    broker: Broker,
    source: Source,
    sequence: int,
    work: Callable[[], Work[wire.Answer | None]],
    answer: Answered,
    again: Callable[[], None] = _always_done,
    looks: bool = False,
) -> None:
    """Does `work` in turns, and answers with its result. It begins after everything that its source submitted before is
    applied; the work of one source is done one piece after the other, unless it only `looks` (Node.add_work). `again`:
    called if the result is None."""
    begin = partial(_begin, broker, source, sequence, work, answer, again, looks)
    _after_changes(broker, source, sequence, begin, answer)


def submit_read(
    broker: Broker,
    source: Source,
    sequence: int,
    read: Read,
    answer: Answered,
    on_reserved: Callable[[Reservation], bool],
    answer_bytes: int = LARGE_ANSWER_BYTES,
    looks: bool = False,
) -> None:
    """Reads as `submit_work` does its work, once there is room for an answer of `answer_bytes`: `on_reserved` then gets
    the reservation, and returns whether the answer is still wanted. A read that is not done soon, or where others wait
    would not be, gives the room back and waits for room among the long ones: `on_reserved` gets another reservation."""
    reading = _Reading(broker, source, sequence, read, answer, on_reserved, answer_bytes, looks)
    _after_changes(broker, source, sequence, partial(reading.wait, is_long=False), answer)


def way_to_read(broker: Broker, reservation: Reservation, read: Read) -> Callable[[], Work[wire.Answer | None]] | None:
    """Returns what begins a read for which this room is reserved; None: it is to wait for room among the long ones."""
    if not reservation.must_be_quick:
        return read.whole
    return None if broker.answers.others_wait and read.is_large() else read.quick


class _Reading(NamedTuple):
    """Describes a read that waits for room, or is done: what `submit_read` was given. (A function that names itself
    would be a circle, which stays in memory.)"""

    broker: Broker
    source: Source
    sequence: int
    read: Read
    answer: Answered
    on_reserved: Callable[[Reservation], bool]
    answer_bytes: int
    looks: bool

    def wait(self, is_long: bool) -> None:
        self.broker.answers.reserve(self._reserved, self.source.connection, self.answer_bytes, is_long)

    def _reserved(self, reservation: Reservation) -> None:
        if not self.on_reserved(reservation):
            return
        again, work = partial(self._again, reservation), way_to_read(self.broker, reservation, self.read)
        if work is None:
            again()
        else:
            _begin(self.broker, self.source, self.sequence, work, self.answer, again, self.looks)

    def _again(self, reservation: Reservation) -> None:
        reservation.release()
        self.wait(is_long=True)


def _after_changes(broker: Broker, source: Source, sequence: int, begin: Callable[[], None], answer: Answered) -> None:
    item = Item(0, None, lambda _: begin(), lambda error: answer(broker.refusal(sequence, error)))
    broker.commit_loop.submit(item, source.connection)


def _begin(
    broker: Broker,
    source: Source,
    sequence: int,
    work: Callable[[], Work[wire.Answer | None]],
    answer: Answered,
    again: Callable[[], None],
    looks: bool,
) -> None:
    def done(found: wire.Answer | None, error: Exception | None) -> None:
        if error is not None:
            answer(broker.refusal(sequence, as_shoal_error(error)))
        elif found is None:
            again()
        else:
            found.sequence = sequence
            answer(found)

    broker.add_work(source, work(), done, looks)
