"""Turns requests of sessions and unary calls, besides changes, into work in steps: attach, detach, pull, describe.

A request is checked at once, before its work is queued. Not here: acks and nacks (settling), changes, and room for
answers (adapters/requests).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from shoal_contract.errors import Corrupt, NoSuchQueue, ShoalError
from shoal_contract.limits import WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX, WINDOW_MESSAGES_DEFAULT, WINDOW_MESSAGES_MAX
from shoal_contract.names import check_name, show
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.checking.session_frames import (
    check_attach,
    check_describe,
    check_detach,
)
from shoal_slice_node.core.dispatch.exclusive import consumed_elsewhere
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.new_part import NewPart, part_of
from shoal_slice_node.core.dispatch.parcels import Parcel
from shoal_slice_node.core.dispatch.pulling import STEPS_NO_LIMIT, PullAnswer, PullTerms, nobody_waits
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.unacked_counts import unacked, unacked_of_key
from shoal_slice_node.core.limits import (
    ATTACHED_PER_STEP,
    PULL_BYTES_MAX,
    PULL_MESSAGES_MAX,
    PULL_ROWS_PER_STEP,
    QUICK_STEPS_MAX,
)
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.node.reads import Length, Read, length_of
from shoal_slice_node.core.read.reading import NOT_CONSUMED, Consumption, peek_if_brief
from shoal_slice_node.core.read.reading import describe as describe_work
from shoal_slice_node.core.rows.queue_row import life_of
from shoal_slice_node.core.turns import Work, begun

_log = logging.getLogger(__name__)


def as_shoal_error(error: Exception) -> ShoalError:
    """Returns the error to tell the caller. A read that meets a defect fails alone: the defect is logged."""
    if isinstance(error, ShoalError):
        return error
    _log.error(
        "a request failed by a fault of the slice; its caller was told: please report it with what follows",
        exc_info=error,
    )
    return Corrupt(f"this request failed inside the slice: {type(error).__name__}; its log says why", subject="request")


def attach(node: Node, session: Session, request: wire.Attach) -> Callable[[], Work[wire.Answer]]:
    """Checks an attach; returns its work, which must be done unless the session ends. Raises Malformed, TooLarge,
    InvalidName."""
    check_attach(request)
    messages = min(request.window_messages or WINDOW_MESSAGES_DEFAULT, WINDOW_MESSAGES_MAX)
    body_bytes = min(request.window_bytes or WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX)
    session.asked.begin(request.queues)
    return partial(_attach, node, session, request, messages, body_bytes)


def _attach(node: Node, session: Session, request: wire.Attach, messages: int, body_bytes: int) -> Work[wire.Answer]:
    try:
        return (yield from _attach_all(node, session, request, messages, body_bytes))
    finally:
        session.asked.end(request.queues)


def _attach_all(
    node: Node, session: Session, request: wire.Attach, messages: int, body_bytes: int
) -> Work[wire.Answer]:
    """Attaches all of the queues, or none. What handles meant before, and exclusive queues that others had, could
    not be given back, so the room of all is looked at first; if others take it meanwhile, the session ends.

    Raises Conflict, ResourceExhausted.
    """
    dispatcher, attaching = node.dispatcher, node.dispatcher.attaching
    wanted = list(zip(request.queues, request.handles, strict=True))
    replaces = any(session.queue_of(handle) is not None for handle in request.handles)
    if replaces or attaching.knows_exclusives:
        room = attaching.room(session)
        for number, (queue, handle) in enumerate(wanted, 1):
            room.check(queue, handle)
            if number % ATTACHED_PER_STEP == 0:
                yield
    lives: list[int] = []
    took = False
    try:
        for number, (queue, handle) in enumerate(wanted, 1):
            before = attaching.taken_over
            lives.append(dispatcher.attach(session, queue, handle, messages, body_bytes).life)
            took = took or attaching.taken_over != before
            if number % ATTACHED_PER_STEP == 0:
                yield
    except ShoalError as error:
        for handle in request.handles[: len(lives)]:
            dispatcher.detach(session, handle)
        if replaces or took:  # Others took the room meanwhile.
            attaching.end(session, error)
        raise
    return wire.Answer(attached=_told(session, request.handles, lives, node.epoch))


def _told(session: Session, handles: Sequence[int], lives: Sequence[int], epoch: int) -> wire.Attached:
    """Returns the answer to an attach, as all is at its end: queues may have been dropped or declared meanwhile.
    `lives`: those that `attach` returned. They are told for handles that are not attached because another session keeps
    their exclusive queue."""
    here: list[NewPart] = []
    for handle, life in zip(handles, lives, strict=True):
        attachment = session.attachments.get(handle)
        without = NewPart(0, 0 if handle in session.awaited else life)
        here.append(without if attachment is None else part_of(attachment))
    told = [part.life for part in here]
    timeouts_ms = [part.ack_timeout_ms for part in here]
    return wire.Attached(
        absent=[handle for handle, life in zip(handles, told, strict=True) if not life],
        lives=told,
        ack_timeouts_ms=timeouts_ms if any(timeouts_ms) else [],
        tells_nacks_taken=True,
        epoch=epoch,
    )


def detach(node: Node, session: Session, request: wire.Detach) -> Callable[[], Work[wire.Answer]]:
    """Checks a detach; returns its work. Raises TooLarge."""
    check_detach(request)

    def work() -> Work[wire.Answer]:
        for number, handle in enumerate(request.handles, 1):
            node.dispatcher.detach(session, handle)
            if number % ATTACHED_PER_STEP == 0:
                yield
        return wire.Answer()

    return work


def pull(
    node: Node,
    session: Session,
    request: wire.Pull,
    lease_ms_default: int,
    lease_ms_max: int,
    pull_answer: PullAnswer | None = None,
    others_wait: Callable[[], bool] = nobody_waits,
) -> Read:
    """Checks a pull, or a peek. `pull_answer`: the `answer` of Puller.pull. `others_wait`: see PullTerms. Raises
    InvalidName."""
    check_name(request.queue, "queue")
    messages = min(request.messages_max or PULL_MESSAGES_MAX, PULL_MESSAGES_MAX)
    body_bytes = min(request.bytes_max or PULL_BYTES_MAX, PULL_BYTES_MAX)
    terms = PullTerms(messages, body_bytes, min(request.lease_ms or lease_ms_default, lease_ms_max), others_wait)

    def now_ms() -> int:
        return node.now_ms

    def work(steps_max: int, brief_bytes: int = 0) -> Work[wire.Answer | None]:
        """Pulls or peeks. `brief_bytes`: what the answer may take; 0: whatever it needs. Raises NoSuchQueue,
        ResourceExhausted."""
        queue_id = node.state.tables.queue_by_name.get(request.queue)
        if queue_id is None or node.dispatcher.is_ending(queue_id):
            name = show(request.queue)
            raise NoSuchQueue(f"queue {name} does not exist; declare it first", subject=name)
        feed = node.dispatcher.feeds.get(queue_id)
        if feed is not None and feed.exclusive is not None and not request.peek:
            check_not_held(feed, session)
        answer = wire.Answer(pulled=wire.Deliveries(life=life_of(queue_id)))
        found: Sequence[wire.Delivery | Parcel] | None = ()
        if request.peek:
            clock_ms, most_bytes = node.dispatcher.expiry_clock_ms, brief_bytes or 1 << 62
            found = yield from peek_if_brief(node.state, queue_id, messages, body_bytes, clock_ms, most_bytes)
        elif node.dispatcher.part_here(request.queue) is not None:
            own_terms = terms._replace(brief_bytes=brief_bytes)
            found = yield from node.puller.pull_within(steps_max, session, queue_id, own_terms, now_ms, pull_answer)
        else:
            node.unused_drops.want(request.queue)
        if found is None:
            return None
        for number, one in enumerate(found, 1):
            if isinstance(one, wire.Delivery):
                answer.pulled.deliveries.append(one)
            elif one.is_gap:
                answer.pulled.gaps.append(one.to_gap())
            else:
                answer.pulled.deliveries.append(one.to_wire())
            if number % PULL_ROWS_PER_STEP == 0:
                yield
        return answer

    def whole() -> Work[wire.Answer]:
        answer = yield from work(STEPS_NO_LIMIT)
        assert answer is not None
        return answer

    def within(steps_max: int) -> Work[wire.Answer | None]:
        return begun(whole(), steps_max) if request.peek else work(steps_max)

    def brief(bytes_max: int) -> Work[wire.Answer | None]:
        reading = work(QUICK_STEPS_MAX, bytes_max)
        return begun(reading, QUICK_STEPS_MAX) if request.peek else reading

    def length() -> Length:
        if not request.peek and node.dispatcher.loaded(request.queue) is not None:
            return Length.QUICK
        return length_of(node.state, (request.queue,))  # The bindings have to be loaded first, or looked at.

    return Read(whole, within, brief, length, request.peek, queue_pulled=b"" if request.peek else request.queue)


def check_not_held(feed: Feed, session: Session) -> None:
    """Raises Conflict if another session has the exclusive queue attached."""
    assert feed.exclusive is not None
    if any(one.session is not session and not one.session.closed for one in feed.attachments.values()):
        raise consumed_elsewhere(feed.name, feed.exclusive)


def describe(node: Node, request: wire.Describe) -> Read:
    """Checks a describe. Raises TooLarge, InvalidName."""
    check_describe(request)
    whole = partial(_describe, node, request)
    length = partial(length_of, node.state, request.queues)

    def within(steps_max: int) -> Work[wire.Answer | None]:
        return begun(whole(), steps_max)

    def brief(bytes_max: int) -> Work[wire.Answer | None]:
        answer = yield from within(QUICK_STEPS_MAX)
        return None if answer is None or answer.ByteSize() > bytes_max else answer

    return Read(whole, within, brief, length, may_be_tried=True)


def _describe(node: Node, request: wire.Describe) -> Work[wire.Answer]:
    """Describes. Raises NotOwner, ResourceExhausted."""
    consumption_of, due_ms = partial(_consumption, node), partial(_due_ms, node)
    description = yield from describe_work(node.state, request, consumption_of, due_ms)
    return wire.Answer(description=description)


def _consumption(node: Node, queue_id: bytes) -> Consumption:
    feed = node.dispatcher.feeds.get(queue_id)
    if feed is None:
        return NOT_CONSUMED
    return Consumption(len(feed.attachments), len(feed.pullers), unacked(feed), partial(unacked_of_key, feed))


def _due_ms(node: Node, queue_id: bytes, after_s: int) -> int:
    left_ms = node.dispatcher.farewells.remaining_ms(queue_id, after_s, node.now_ms)
    return 0 if left_ms is None or not node.wall_ms else node.wall_ms + left_ms
