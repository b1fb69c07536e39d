"""Turns acks and nacks of sessions and unary calls into work in steps.

A frame's numbers are checked at once, its names in the first steps, before anything is settled. Not here: what is done
with one queue's messages (dispatch/acks_in_flight), and when acks are durable (ack_flush).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.checking.session_frames import check_ack, check_nacks, count_acks
from shoal_slice_node.core.dispatch.acks_in_flight import NackTerms
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.pieces import pieces
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.unsent import UnsentLists, list_some_unsent
from shoal_slice_node.core.limits import ACKED_PER_STEP, STRETCHES_PER_PIECE
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.node.requests import as_shoal_error
from shoal_slice_node.core.read.unacked import parts_named, still_unacked
from shoal_slice_node.core.rows.key_row import ID, head_of
from shoal_slice_node.core.turns import Source, Work

_Held = tuple[Attachment, int, int]
"""The meaning of an ack or nack for one attachment: the offsets low <= o < to, as far as the attachment has them."""

_NOTHING: Final = (0, 0)
"""No offsets: there is nothing to look at."""

_ENDED: Final = object()
_ALL_RESETS: Final = (1 << 62) - 1
"""No session has so many resets."""


def resets_seen(frame: wire.Acks | wire.Nacks) -> int:
    """Returns how many resets the client had seen when it made the frame; if it does not say so, as if it were all."""
    return frame.resets_seen if frame.HasField("resets_seen") else _ALL_RESETS


def take_acks(
    node: Node,
    source: Source,
    session: Session,
    acks: list[wire.Ack],
    done: Callable[[ShoalError | None], None],
    everyone: bool,
    unacked: list[int] | None = None,
    seen: int = _ALL_RESETS,
    of_lost_stream: bool = False,
) -> None:
    """Acks what this session (`everyone`: any session) has out; what is not out stays as it is. Calls `done` with None
    when all acks were looked at, which may be at once; or with the error, and then nothing was acked. The acks become
    durable with one of the next flushes, as each has a bound: `AckFlush.then` tells when, and nothing else does.
    `unacked`: is filled with the places of what is still unacked then (`Unacked` of the contract); all the rest is
    durable once `then` has told. `seen`: how many resets the client had seen (`resets_seen`).
    `of_lost_stream`: what handles name is acked wherever it is (`Acks` of the contract).

    Raises TooLarge.
    """
    consumers = count_acks(acks)
    work = _ack_all(node, session, acks, everyone, unacked, seen, of_lost_stream)
    _settle(node, source, work, consumers if unacked is None else 2 * consumers, done)


def take_nacks(
    node: Node,
    source: Source,
    session: Session,
    nacks: wire.Nacks,
    done: Callable[[ShoalError | None], None],
    everyone: bool,
) -> None:
    """Takes back what this session (`everyone`: any session) has out of the named messages; what is not out stays as it
    is. Calls `done` as `take_acks` does.

    Raises TooLarge, OutOfRange, Malformed. Whether too many messages would rest is known only while the work is done:
    then `done` is called with ResourceExhausted, and messages named before were taken back.
    """
    delay_ms = check_nacks(nacks, everyone)
    terms = NackTerms(delay_ms, nacks.unseen, unsent_too=nacks.number > 0)
    looks = count_acks(nacks.messages) + len(nacks.stop)
    _settle(node, source, _nack_all(node, session, nacks, terms, everyone), looks, done)


def _settle(
    node: Node, source: Source, work: Work[None], looks: int, done: Callable[[ShoalError | None], None]
) -> None:
    """Does the work of acks or nacks: at once if it is a small step, else in its turn."""
    if looks <= ACKED_PER_STEP and not node.turns.busy(source) and node.commit.whole:
        try:  # A small step: it need not wait for its turn.
            if next(work, _ENDED) is _ENDED:
                done(None)
                return
        except ShoalError as error:
            done(error.with_traceback(None))
            return
    node.add_work(source, work, lambda _, error: done(None if error is None else as_shoal_error(error)))


def _check_names(node: Node, acks: Sequence[wire.Ack]) -> Work[list[tuple[wire.Ack, bytes]]]:
    """Checks all acks, or nacks, in steps. Returns each with the full name of its key. Raises InvalidName, Malformed,
    NotOwner."""
    left = ACKED_PER_STEP
    checked: list[tuple[wire.Ack, bytes]] = []
    for ack in acks:
        checked.append((ack, node.state.full_name(ack.key)))
        left -= 1 + check_ack(ack)
        if left <= 0:
            left = ACKED_PER_STEP
            yield
    return checked


def _ack_all(
    node: Node,
    session: Session,
    acks: Sequence[wire.Ack],
    everyone: bool,
    unacked: list[int] | None,
    seen: int,
    of_lost_stream: bool,
) -> Work[None]:
    """Checks all acks, then takes them, then tells what is unacked. Raises InvalidName, Malformed, NotOwner, before
    anything is acked."""
    named = yield from _check_names(node, acks)
    taking = node.dispatcher.acks
    left = ACKED_PER_STEP
    for ack, full_name in named:
        row = node.state.tables.key.get(full_name)
        left -= 1
        if row is None:
            continue
        key_id, low, to = row[ID], ack.low, ack.to
        handles = [] if everyone else list(dict.fromkeys(ack.handles))  # A second time it would change nothing.
        if of_lost_stream and low > 0:  # Else it means what this session was given.
            for handle in handles:
                for cost in _ack_anywhere(node, session, handle, key_id, low, min(to, head_of(row)), seen):
                    left -= cost
                    if left <= 0:
                        left = ACKED_PER_STEP
                        yield
            handles = []
        at, begin = 0, low
        while at < len(handles):
            at, begin, left = taking.ack_handles(session, handles, at, begin, key_id, low, to, seen, left)
            if left <= 0:
                left = ACKED_PER_STEP
                yield
        for held in _everyone(node, ack, key_id) if everyone else _pulled(node, session, ack):
            for first, end in (_NOTHING,) if held is None else pieces(held[0], key_id, held[1], held[2]):
                left -= 1 if held is None else taking.ack(held[0], key_id, first, end)
                if left <= 0:
                    left = ACKED_PER_STEP
                    yield
    if unacked is not None:
        unacked.extend((yield from still_unacked(node.state, node.dispatcher.feeds, session, named, seen)))


def _ack_anywhere(
    node: Node, session: Session, handle: int, key_id: bytes, low: int, to: int, seen: int
) -> Iterator[int]:
    """Acks what a handle's queue has of a key, wherever it is. Yields after each piece what it cost, in acks."""
    while True:
        attachment = session.attachments.get(handle)
        if attachment is None or attachment.resets_before > seen:
            yield 1
            return
        stream = attachment.feed.streams.get(key_id)
        end = to if stream is None else stream.span(low, to, STRETCHES_PER_PIECE)
        yield node.dispatcher.acks.ack_anywhere(attachment, key_id, low, end)
        if end >= to:
            return
        low = end


def _nack_all(node: Node, session: Session, nacks: wire.Nacks, terms: NackTerms, everyone: bool) -> Work[None]:
    """Checks all nacks, then stops handles, then takes back what is named. A numbered frame's session notes which
    consumers were looked at. Raises InvalidName, Malformed, NotOwner, before anything is taken back or stopped."""
    named = yield from _check_names(node, nacks.messages)
    number, seen, lists = nacks.number, resets_seen(nacks), UnsentLists()

    def looked_at(consumers: int) -> None:
        nonlocal number
        if number and consumers:
            number += consumers
            session.note_nacks_taken(number - 1)

    for handle in nacks.stop:
        node.dispatcher.stop(session, handle)
    left = ACKED_PER_STEP
    for nack, full_name in named:
        row = node.state.tables.key.get(full_name)
        left -= 1
        if row is None:
            looked_at(len(nack.handles) + len(nack.queues))
            continue
        key_id = row[ID]
        for held in _everyone(node, nack, key_id) if everyone else _own(node, session, nack, seen):
            while held is not None and list_some_unsent(held[0], key_id):
                yield
            if held is None:
                left -= 1
            else:
                # A numbered one is taken whole: what is given again at once would seem to be of before it.
                whole = iter(((held[1], held[2]),)) if number else None
                for first, end in whole or pieces(held[0], key_id, held[1], held[2]):
                    if left <= 0:
                        left = ACKED_PER_STEP
                        yield
                    if first == held[1] and end < held[2]:
                        left -= node.dispatcher.acks.check_nack(held[0], key_id, first, held[2], terms)
                    left -= node.dispatcher.nack(held[0], key_id, first, end, terms, lists)
            looked_at(1)
            if left <= 0:
                left = ACKED_PER_STEP
                yield


def _own(node: Node, session: Session, nack: wire.Ack, seen: int) -> Iterator[_Held | None]:
    """Yields what a nack means for this session. None: a handle or queue was looked for, and is not there, or an
    earlier life of the queue is meant."""
    low, to, attachments = nack.low, nack.to, session.attachments
    for handle in dict.fromkeys(nack.handles):  # A second time it would find nothing.
        attachment = attachments.get(handle)
        yield None if attachment is None or attachment.resets_before > seen else (attachment, low, to)
    yield from _pulled(node, session, nack)


def _pulled(node: Node, session: Session, ack: wire.Ack) -> Iterator[_Held | None]:
    """Does the same for the queues that an ack, or nack, names: the session has pulled from them."""
    low, to = ack.low, ack.to
    for queue_id in parts_named(node.state, ack):
        attachment = None if queue_id is None else session.pullers.get(queue_id)
        yield None if attachment is None else (attachment, low, to)


def _everyone(node: Node, ack: wire.Ack, key_id: bytes) -> Iterator[_Held | None]:
    """Yields what any session has of these queues: a unary ack names messages, and does not say which session was given
    them. Sessions that have none of them cost nothing."""
    for queue_id in parts_named(node.state, ack):
        feed = None if queue_id is None else node.dispatcher.feeds.get(queue_id)
        stream = None if feed is None else feed.streams.get(key_id)
        low, to = ack.low, ack.to
        if stream is None or low >= to:
            yield None
            continue
        while low < to:
            end = stream.span_out(low, to, STRETCHES_PER_PIECE)
            yield from stream.held(low, end) or (None,)
            low = end
