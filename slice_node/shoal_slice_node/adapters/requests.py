"""Submits the requests of sessions and unary calls to a broker: changes, and work in turns with room for its answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.answer_room import Reservation
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import BRIEF_ANSWER_BYTES, LARGE_ANSWER_BYTES
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.producers import kept_answer
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import MIDDLING_STEPS_MAX, QUICK_STEPS_MAX
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.node.live_changes import publish_live
from shoal_slice_node.core.node.reads import Length, Read
from shoal_slice_node.core.node.requests import as_shoal_error
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
    the reservation, and returns whether the answer is still wanted. A read that is not done soon, or likely not to be,
    gives the room back and waits for room among the longer ones: `on_reserved` gets another reservation."""
    reading = _Reading(broker, source, sequence, read, answer, on_reserved, answer_bytes, looks)
    _after_changes(broker, source, sequence, reading.begin, answer)


def way_to_read(
    broker: Broker, reservation: Reservation, read: Read
) -> tuple[Callable[[], Work[wire.Answer | None]] | None, Length]:
    """Returns what begins a read for which this room is reserved; None: it is not to begin now. Then, or if the result
    is None, it is to wait for room among those of the length that is returned, too."""
    if not reservation.must_be_quick:
        return read.whole, Length.LONG
    is_brief = reservation.is_brief
    if reservation.length < Length.MIDDLING and (is_brief or not read.may_be_tried or broker.answers.others_wait()):
        length = _length_of(read)
        if length is not Length.QUICK:
            return None, length
    if is_brief:
        return partial(read.brief, BRIEF_ANSWER_BYTES), Length.LARGE
    if reservation.length is Length.MIDDLING:
        return partial(read.within, MIDDLING_STEPS_MAX), Length.LONG
    return partial(read.within, QUICK_STEPS_MAX), Length.MIDDLING


def _length_of(read: Read) -> Length:
    """Returns how long a read is likely to take. One that meets a defect in the tables counts as quick: it fails in its
    own work then, and alone."""
    try:
        return read.length()
    except Exception:
        return Length.QUICK


class _Reading:
    """Does one read: what `submit_read` was given. (A function that names itself would be a circle, which stays in
    memory.)"""

    __slots__ = ("_length", "answer", "answer_bytes", "broker", "looks", "on_reserved", "read", "sequence", "source")

    def __init__(
        self,
        broker: Broker,
        source: Source,
        sequence: int,
        read: Read,
        answer: Answered,
        on_reserved: Callable[[Reservation], bool],
        answer_bytes: int,
        looks: bool,
    ) -> None:
        self.broker = broker
        self.source = source
        self.sequence = sequence
        self.read = read
        self.answer = answer
        self.on_reserved = on_reserved
        self.answer_bytes = answer_bytes
        self.looks = looks
        self._length = Length.QUICK
        """Among the reads of which length a pull waits that is not done in its place."""

    def begin(self) -> None:
        """Begins the read: a pull in its place among what its owner asked for, if it need not wait then."""
        if self.read.queue_pulled:
            self.broker.add_work(self.source, self._in_place(), self._was_in_place)
        else:
            self._wait(Length.QUICK)

    def _in_place(self) -> Work[wire.Answer | None]:
        """Pulls. The result is None if an earlier pull of the queue waits, if there is no room at once, or if it is not
        done soon."""
        if self.broker.pull_lines.has(self.source, self.read.queue_pulled):
            return None
        reservation = self.broker.answers.reserved_at_once(self.source.connection, self.answer_bytes)
        if reservation is None or not self.on_reserved(reservation):
            return None
        work, self._length = way_to_read(self.broker, reservation, self.read)
        found = None
        try:
            if work is not None:
                found = yield from work()
        except GeneratorExit:  # Its owner is gone.
            reservation.release()
            raise
        if found is None:
            reservation.release()
        return found

    def _was_in_place(self, found: wire.Answer | None, error: Exception | None) -> None:
        if found is None and error is None:
            self.broker.pull_lines.enter(self.source, self.read.queue_pulled, partial(self._wait, self._length))
        else:
            _answer(self.broker, self.sequence, self.answer, found, error)

    def _wait(self, length: Length) -> None:
        self.broker.answers.reserve(self._reserved, self.source.connection, self.answer_bytes, length)

    def _reserved(self, reservation: Reservation) -> None:
        long_work, length = self.broker.long_work, reservation.length
        if not self.on_reserved(reservation):
            self._ended()
            return
        if long_work.has(self.source):
            reservation.release()
            long_work.when_over(self.source, partial(self._wait, length))
            return
        work, longer = way_to_read(self.broker, reservation, self.read)
        if work is None:
            self._again(reservation, longer)
            return
        takes_long = length >= Length.MIDDLING and not self.looks
        if takes_long:
            long_work.begin(self.source)
        done = partial(self._done, takes_long, partial(self._again, reservation, longer))
        self.broker.add_work(self.source, work(), done, self.looks)

    def _done(
        self, took_long: bool, again: Callable[[], None], found: wire.Answer | None, error: Exception | None
    ) -> None:
        if took_long:
            self.broker.long_work.end(self.source)
        if found is None and error is None:
            again()
            return
        _answer(self.broker, self.sequence, self.answer, found, error)
        self._ended()

    def _again(self, reservation: Reservation, length: Length) -> None:
        reservation.release()
        self._wait(length)

    def _ended(self) -> None:
        if self.read.queue_pulled:
            self.broker.pull_lines.leave(self.source, self.read.queue_pulled)


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
        if found is None and error is None:
            again()
        else:
            _answer(broker, sequence, answer, found, error)

    broker.add_work(source, work(), done, looks)


def _answer(
    broker: Broker, sequence: int, answer: Answered, found: wire.Answer | None, error: Exception | None
) -> None:
    if error is not None:
        answer(broker.refusal(sequence, as_shoal_error(error)))
    else:
        assert found is not None
        found.sequence = sequence
        answer(found)
