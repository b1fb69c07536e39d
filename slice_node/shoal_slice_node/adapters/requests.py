"""What sessions and unary calls ask of a broker, however they came: changes, attaches, acks, pulls, describes."""

from __future__ import annotations

from collections.abc import Callable

from shoal_contract.errors import Malformed, NoSuchQueue, ShoalError, TooLarge
from shoal_contract.names import check_name, show
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.commit_loop import Item, now_ms
from shoal_slice_node.core.dispatch.feeds import Attachment
from shoal_slice_node.core.dispatch.pulling import PullTerms
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.frames import parse_change
from shoal_slice_node.core.reading import describe_key, describe_queue, peek
from shoal_slice_node.core.records import ChangeHead, Kind, encode_change
from shoal_slice_node.limits import (
    DESCRIBE_BINDINGS_MAX,
    DESCRIBE_NAMES_MAX,
    PULL_BYTES_MAX,
    PULL_MESSAGES_MAX,
    QUEUES_PER_ATTACH_MAX,
    WINDOW_BYTES_DEFAULT,
    WINDOW_BYTES_MAX,
    WINDOW_MESSAGES_DEFAULT,
    WINDOW_MESSAGES_MAX,
)

Answered = Callable[[wire.Answer], None]


def submit_change(broker: Broker, head: ChangeHead, data: bytes, answer: Answered) -> None:
    """Journals and applies a change; its answer comes once that is durable. Raises Malformed, TooLarge."""
    change, operations = parse_change(data)
    sequence = head.sequence

    def applied(effects: Effects) -> None:
        if effects.refused is not None:
            assert isinstance(effects.refused, ShoalError)
            answer(wire.Answer(sequence=sequence, error=effects.refused.to_wire()))
            return
        assert effects.outcome is not None
        live = None
        if effects.published:
            by_key = broker.dispatcher.by_key
            live = [0 if key is None else len(by_key.get(key, ())) for key in effects.published]
        answer(wire.Answer(sequence=sequence, outcome=effects.outcome, live=live))

    def failed(error: ShoalError) -> None:
        answer(wire.Answer(sequence=sequence, error=error.to_wire()))

    broker.commit.submit(Item(Kind.CHANGE, encode_change(head, data), applied, failed, change, operations))


def submit_read(broker: Broker, sequence: int, read: Callable[[], wire.Answer], answer: Answered) -> None:
    """Answers with what `read` finds, after all that was submitted before."""

    def applied(_: Effects) -> None:
        try:
            found = read()
        except ShoalError as error:
            found = wire.Answer(error=error.to_wire())
        found.sequence = sequence
        answer(found)

    def failed(error: ShoalError) -> None:
        answer(wire.Answer(sequence=sequence, error=error.to_wire()))

    broker.commit.submit(Item(0, None, applied, failed))


def attach(broker: Broker, session: Session, request: wire.Attach) -> wire.Answer:
    """Raises Malformed, TooLarge, InvalidName."""
    if len(request.queues) != len(request.handles):
        raise Malformed(f"attach has {len(request.queues)} queues but {len(request.handles)} handles")
    _check_count("queues per attach", len(request.queues), QUEUES_PER_ATTACH_MAX)
    for queue in request.queues:
        check_name(queue, "queue")
    messages = min(request.window_messages or WINDOW_MESSAGES_DEFAULT, WINDOW_MESSAGES_MAX)
    body_bytes = min(request.window_bytes or WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX)
    absent = [
        handle
        for queue, handle in zip(request.queues, request.handles, strict=True)
        if not broker.dispatcher.attach(session, queue, handle, messages, body_bytes)
    ]
    broker.after_event()
    return wire.Answer(attached=wire.Attached(absent=absent))


def detach(broker: Broker, session: Session, request: wire.Detach) -> wire.Answer:
    for handle in request.handles:
        broker.dispatcher.detach(session, handle)
    broker.after_event()
    return wire.Answer()


def take_acks(broker: Broker, session: Session, acks: list[wire.Ack], whoever: bool = False) -> None:
    """An ack for what this session (`whoever`: any session) does not have out changes nothing.

    Raises InvalidName, NotOwner.
    """
    for ack in acks:
        row = broker.state.tables.key.get(broker.state.full_name(ack.key))
        if row is None:
            continue
        for attachment in _everyone(broker, ack) if whoever else _attachments(broker, session, ack):
            broker.dispatcher.ack(attachment, row[:8], ack.low, ack.to)
    broker.after_event()


def _attachments(broker: Broker, session: Session, ack: wire.Ack) -> list[Attachment]:
    found = [session.attachments.get(handle) for handle in ack.handles]
    for queue in ack.queues:
        queue_id = broker.state.tables.queue_by_name.get(queue)
        found.append(None if queue_id is None else session.pullers.get(queue_id))
    return [attachment for attachment in found if attachment is not None]


def _everyone(broker: Broker, ack: wire.Ack) -> list[Attachment]:
    """All who have something of these queues: a unary ack names messages, and does not say who was given them."""
    found: list[Attachment] = []
    for queue in ack.queues:
        queue_id = broker.state.tables.queue_by_name.get(queue)
        feed = None if queue_id is None else broker.dispatcher.feeds.get(queue_id)
        if feed is not None:
            found += [*feed.attachments, *feed.pullers.values()]
    return found


def pull(broker: Broker, session: Session, request: wire.Pull, lease_ms_default: int) -> wire.Answer:
    """Raises NoSuchQueue."""
    state = broker.state
    queue_id = state.tables.queue_by_name.get(request.queue)
    if queue_id is None:
        raise NoSuchQueue(f"queue {show(request.queue)} is not declared on this slice", subject=show(request.queue))
    messages = min(request.messages_max or PULL_MESSAGES_MAX, PULL_MESSAGES_MAX)
    body_bytes = min(request.bytes_max or PULL_BYTES_MAX, PULL_BYTES_MAX)
    if request.peek:
        queue = state.load_queue_by_id(queue_id)
        assert queue is not None
        return wire.Answer(pulled=wire.Deliveries(deliveries=peek(state, queue, messages, body_bytes)))
    terms = PullTerms(messages, body_bytes, request.lease_ms or lease_ms_default)
    parcels = broker.puller.pull(session, queue_id, terms, now_ms())
    return wire.Answer(pulled=wire.Deliveries(deliveries=[parcel.to_wire() for parcel in parcels]))


def describe(broker: Broker, request: wire.Describe) -> wire.Answer:
    """Raises TooLarge, InvalidName, NotOwner."""
    _check_count("names per describe", len(request.queues) + len(request.keys), DESCRIBE_NAMES_MAX)
    state = broker.state
    description = wire.Description()
    listed = 0
    for name in request.queues:
        queue_id = state.tables.queue_by_name.get(name)
        feed = None if queue_id is None else broker.dispatcher.feeds.get(queue_id)
        attached = len({attachment.session.number for attachment in feed.attachments}) if feed else 0
        bindings_max = DESCRIBE_BINDINGS_MAX - listed if request.bindings else 0
        described = describe_queue(state, name, attached, bindings_max)
        listed += len(described.bindings)
        description.queues.append(described)
    description.keys.extend(describe_key(state, name) for name in request.keys)
    return wire.Answer(description=description)


def _check_count(what: str, value: int, limit: int) -> None:
    if value > limit:
        raise TooLarge(f"{what}: {value}; the limit is {limit}", subject=what, limit=limit, value=value)
