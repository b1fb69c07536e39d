"""Queues, bindings and options of keys: declare, configure, bind, unbind, describe, farewell, drop,
purge."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

import shoal
from shoal_contract.errors import Malformed, NoSuchQueue
from shoal_contract.names import Name, encode_name, show
from shoal_ops.http import messages, models, names
from shoal_ops.http.bounded_json import BoundedRoute
from shoal_ops.http.callers import while_wanted
from shoal_ops.http.parameters import NO_IDEMPOTENCY_KEY, KeyName, QueueName, TheGateway

router = APIRouter(tags=["queues"], route_class=BoundedRoute)


@router.post("/v1/queues", response_model=models.Declared)
async def declare_queues(gateway: TheGateway, wanted: models.DeclareQueues) -> models.Declared:
    """Makes many queues exist. Repeating it changes nothing. Answers Conflict where one exists with other options."""
    queues = names.all_given("queue", wanted.queues, wanted.queues_encoded)
    await gateway.broker.declare(queues, wanted.values())
    return models.Declared(declared=len(set(queues)))


@router.put("/v1/queues/{queue}", response_model=models.Declared)
async def declare_queue(
    gateway: TheGateway, queue: QueueName, options: models.QueueOptions | None = None
) -> models.Declared:
    """Makes a queue exist. Repeating it changes nothing. Answers Conflict if it exists with other options."""
    await gateway.broker.declare(queue, (options or models.QueueOptions()).values())
    return models.Declared(declared=1)


@router.get("/v1/queues/{queue}", response_model=models.Queue, response_model_exclude_none=True)
async def describe_queue(request: Request, gateway: TheGateway, queue: QueueName) -> models.Queue:
    """Describes a queue over all its slices, with its exact backlog."""
    found = await while_wanted(request, gateway.broker.describe(queue))
    if not found.exists:
        raise NoSuchQueue(f"queue {show(queue)} does not exist; declare it first", subject=show(queue))
    return models.Queue(
        **names.fields("queue", queue),
        options=models.QueueOptions.of(found.options),
        bindings=found.binding_count,
        messages=found.messages,
        body_bytes=found.body_bytes,
        oldest_ms=found.oldest_ms,
        attached_sessions=found.attached_sessions,
        consumed=found.consumed,
        unacked=found.unacked,
        home=await gateway.home_of(queue),
        farewell=_farewell_of(found.farewell),
    )


def _farewell_of(kept: shoal.FarewellDescription | None) -> models.KeptFarewell | None:
    if kept is None:
        return None
    return models.KeptFarewell(
        **names.fields("key", encode_name(kept.key, "key")), after_s=kept.after_s, due_ms=kept.due_ms
    )


@router.post("/v1/drop", response_model=models.Dropped)
async def drop_queues(gateway: TheGateway, wanted: models.DropQueues) -> models.Dropped:
    """Ends many queues with their bindings and backlogs, each by itself. If some are not dropped, answers with the
    error of the first, and lists all of them in `failed`."""
    queues = names.all_given("queue", wanted.queues, wanted.queues_encoded)
    await gateway.broker.drop(queues, if_unused=wanted.if_unused, if_empty=wanted.if_empty)
    return models.Dropped(dropped=len(set(queues)))


@router.post("/v1/purge", response_model=models.PurgedQueues, response_model_exclude_none=True)
async def purge_queues(gateway: TheGateway, wanted: models.NameQueues) -> models.PurgedQueues:
    """Drops the backlogs of many queues, each by itself; they stay bound. If some are not purged, answers with the
    error of the first, and lists all of them in `failed`."""
    purged = await gateway.broker.purge(names.all_given("queue", wanted.queues, wanted.queues_encoded))
    return models.PurgedQueues(
        queues=[
            models.PurgedQueue(**names.fields("queue", encode_name(queue, "queue")), messages=messages)
            for queue, messages in purged.items()
        ]
    )


@router.delete("/v1/queues/{queue}", status_code=204, response_class=Response)
async def drop_queue(
    gateway: TheGateway,
    queue: QueueName,
    if_unused: Annotated[bool, Query(description="Conflict where a session consumes it", examples=[False])] = False,
    if_empty: Annotated[bool, Query(description="Conflict where it has a backlog", examples=[False])] = False,
) -> None:
    """Ends a queue with its bindings and backlog, at once; space is reclaimed in the background."""
    await gateway.broker.drop(queue, if_unused=if_unused, if_empty=if_empty)


@router.delete("/v1/queues/{queue}/messages", response_model=models.Purged)
async def purge_queue(gateway: TheGateway, queue: QueueName) -> models.Purged:
    """Drops a queue's backlog; it stays bound."""
    return models.Purged(messages=await gateway.broker.purge(queue))


@router.put("/v1/queues/{queue}/farewell", status_code=204, response_class=Response, dependencies=NO_IDEMPOTENCY_KEY)
async def set_farewell(gateway: TheGateway, queue: QueueName, wanted: models.Farewell) -> None:
    """Gives a queue a farewell, in the place of the one that it has: a message that is published once no session has
    consumed the queue for a time."""
    await gateway.broker.farewell(
        queue,
        names.given("key", wanted.key, wanted.key_encoded),
        messages.body_of(wanted.body, wanted.body_base64),
        headers=messages.headers_of(wanted.headers, wanted.headers_base64),
        after_s=wanted.after_s,
    )


@router.delete("/v1/queues/{queue}/farewell", status_code=204, response_class=Response)
async def take_farewell_back(gateway: TheGateway, queue: QueueName) -> None:
    """Takes a queue's farewell back; there may be none."""
    await gateway.broker.farewell(queue)


@router.put("/v1/keys/{key}", status_code=204, response_class=Response)
async def configure_key(gateway: TheGateway, key: KeyName, options: models.KeyOptions) -> None:
    """Gives a key options, in the place of those that it has: a history, a capacity."""
    await gateway.broker.configure(key, options.values())


@router.post("/v1/queues/{queue}/bindings", response_model=models.Offsets, response_model_exclude_none=True)
async def bind_keys(gateway: TheGateway, queue: QueueName, wanted: models.BindKeys) -> models.Offsets:
    """Binds a queue to many keys. The keys of one slice are bound all or none. A key that is bound already stays as it
    is."""
    keys = names.all_given("key", wanted.keys, wanted.keys_encoded)
    start = start_of(wanted)
    return offsets_of(await gateway.broker.bind(queue, keys, start=start), start)


@router.put("/v1/queues/{queue}/bindings/{key}", response_model=models.Offsets, response_model_exclude_none=True)
async def bind_key(
    gateway: TheGateway, queue: QueueName, key: KeyName, start: Annotated[models.StartFields, Query()]
) -> models.Offsets:
    """Binds a queue to one key."""
    begin = start_of(start)
    return offsets_of(await gateway.broker.bind(queue, [key], start=begin), begin)


@router.post("/v1/queues/{queue}/unbind", response_model=models.Offsets, response_model_exclude_none=True)
async def unbind_keys(gateway: TheGateway, queue: QueueName, wanted: models.UnbindKeys) -> models.Offsets:
    """Ends bindings. What was published before stays in the backlog until consumed, unless `discard`."""
    keys = names.all_given("key", wanted.keys, wanted.keys_encoded)
    return offsets_of(await gateway.broker.unbind(queue, keys, discard=wanted.discard))


@router.delete("/v1/queues/{queue}/bindings/{key}", response_model=models.Offsets, response_model_exclude_none=True)
async def unbind_key(
    gateway: TheGateway,
    queue: QueueName,
    key: KeyName,
    discard: Annotated[bool, Query(description="drop its backlog too", examples=[False])] = False,
) -> models.Offsets:
    """Ends one binding."""
    return offsets_of(await gateway.broker.unbind(queue, [key], discard=discard))


def start_of(wanted: models.StartFields) -> shoal.Start:
    """Raises Malformed where a start needs a `value` that is not given, or has none."""
    if wanted.start in ("last", "ago", "offset") and "value" not in wanted.model_fields_set:
        raise Malformed(f"start={wanted.start} needs a value, and none is given", subject="value")
    if wanted.start in ("now", "earliest") and wanted.value:
        raise Malformed(f"start={wanted.start} has no value, and {wanted.value} is given", subject="value")
    match wanted.start:
        case "now":
            return shoal.NOW
        case "earliest":
            return shoal.EARLIEST
        case "last":
            return shoal.Last(wanted.value)
        case "ago":
            return shoal.Ago(wanted.value)
        case "offset":
            return shoal.Offset(wanted.value)


def offsets_of(found: dict[Name, int], start: shoal.Start = shoal.NOW) -> models.Offsets:
    """Returns the answer to a bind from `start`, or to an unbind."""
    named = start.start == shoal.Offset(0).start
    offsets = [
        models.KeyOffset(
            **names.fields("key", encode_name(key, "key")),
            offset=offset,
            recovered=start.recovered(offset) if named else None,
            bound_before=isinstance(offset, shoal.BoundBefore) if named else None,
        )
        for key, offset in found.items()
    ]
    return models.Offsets(offsets=offsets)
