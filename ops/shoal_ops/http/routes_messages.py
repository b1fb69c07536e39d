"""Answers requests about messages: publish, pull, peek, ack, nack, and events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse

import shoal
from shoal_contract.arguments import PULL_MESSAGES
from shoal_contract.errors import Malformed, OutOfRange, ShoalError, Unavailable, check_at_most
from shoal_contract.limits import TIME_S_MAX, TIME_S_MIN
from shoal_contract.names import encode_name, show
from shoal_ops.http import events, limits, messages, models, names
from shoal_ops.http.bounded_json import BoundedRoute
from shoal_ops.http.callers import until_gone, while_wanted
from shoal_ops.http.gateway import Gateway
from shoal_ops.http.parameters import NO_IDEMPOTENCY_KEY, IdempotencyKey, KeyName, QueueName, TheGateway
from shoal_runtime.http import problem
from shoal_runtime.tasks import Tasks

router = APIRouter(tags=["messages"], route_class=BoundedRoute)


@router.post("/v1/keys/{key}/messages", response_model=models.Receipt, response_model_exclude_none=True)
async def publish(
    gateway: TheGateway, key: KeyName, message: models.Publish, idempotency_key: IdempotencyKey = None
) -> models.Receipt:
    """Publishes one message to a key; durable when this answers, unless it is live."""
    receipt = await gateway.broker.publish(
        key,
        messages.body_of(message.body, message.body_base64),
        headers=messages.headers_of(message.headers, message.headers_base64),
        mandatory=message.mandatory,
        not_before=time_of(message.not_before_ms),
        live=message.live,
        ttl=seconds_of(message.ttl_ms),
        idempotency_key=idempotency_key,
    )
    return receipt_of(gateway, receipt)


@router.post("/v1/keys/{key}/messages/batch", response_model=models.Receipt, response_model_exclude_none=True)
async def publish_batch(
    request: Request,
    gateway: TheGateway,
    key: KeyName,
    batch: models.PublishBatch,
    idempotency_key: IdempotencyKey = None,
) -> models.Receipt:
    """Publishes messages to one key, all or none, at consecutive offsets from the receipt's."""
    bodies, headers = await gateway.large_work.do(request.scope, len(batch.messages), lambda: _parts_of(batch))
    await let_go(request, batch.messages)
    receipt = await gateway.broker.publish_many(
        key,
        bodies,
        headers=headers,
        mandatory=batch.mandatory,
        not_before=time_of(batch.not_before_ms),
        live=batch.live,
        ttl=seconds_of(batch.ttl_ms),
        idempotency_key=idempotency_key,
    )
    return receipt_of(gateway, receipt)


@router.post(
    "/v1/messages",
    response_model=models.Outcomes,
    response_model_exclude_none=True,
    dependencies=NO_IDEMPOTENCY_KEY,
)
async def publish_many(request: Request, gateway: TheGateway, many: models.PublishMany) -> models.Outcomes:
    """Publishes messages to many keys, in order, each by itself; one outcome for each. Bad input publishes nothing."""
    values = sum(1 + len(one.headers) + len(one.headers_base64) for one in many.messages)
    checked = await gateway.large_work.do(request.scope, values, lambda: _singles_of(many))
    await let_go(request, many.messages)
    receipts: list[asyncio.Future[shoal.Receipt] | ShoalError] = []
    for number, (key, body, headers, mandatory, not_before, live, ttl) in enumerate(checked):
        await between_steps(number)
        try:
            receipt = await gateway.broker.publish_soon(
                key, body, headers=headers, mandatory=mandatory, not_before=not_before, live=live, ttl=ttl
            )
            receipts.append(receipt)
        except ShoalError as error:
            receipts.append(error)
    outcomes = []
    for number, answer in enumerate(receipts):
        await between_steps(number)
        outcomes.append(await _outcome(gateway, answer))
    return models.Outcomes(published=sum(one.receipt is not None for one in outcomes), outcomes=outcomes)


@router.post("/v1/queues/{queue}/messages", response_model=models.Receipt, response_model_exclude_none=True)
async def send(
    gateway: TheGateway, queue: QueueName, message: models.Sent, idempotency_key: IdempotencyKey = None
) -> models.Receipt:
    """Sends one message to this queue alone, by its direct key `@queue`. Answers Unroutable where there is no such
    queue."""
    receipt = await gateway.broker.send(
        queue,
        messages.body_of(message.body, message.body_base64),
        headers=messages.headers_of(message.headers, message.headers_base64),
        live=message.live,
        ttl=seconds_of(message.ttl_ms),
        idempotency_key=idempotency_key,
    )
    return receipt_of(gateway, receipt._replace(key=b"@" + queue))


@router.get("/v1/queues/{queue}/messages", response_model=models.Messages, response_model_exclude_none=True)
async def peek(
    request: Request,
    gateway: TheGateway,
    queue: QueueName,
    messages_max: Annotated[
        int, Query(alias="messages", ge=PULL_MESSAGES.low, le=limits.PULL_MESSAGES_MAX, examples=[10])
    ] = limits.PULL_MESSAGES_DEFAULT,
) -> Any:
    """Looks at the head of a queue without taking anything."""

    async def look() -> JSONResponse:
        async with gateway.peeks.place(show(queue)):
            return _answer(await gateway.broker.peek(queue, messages_max))

    return await while_wanted(request, look())


@router.post("/v1/queues/{queue}/pull", response_model=models.Messages, response_model_exclude_none=True)
async def pull(request: Request, gateway: TheGateway, queue: QueueName, wanted: models.Pull | None = None) -> Any:
    """Takes messages for the time of a lease, and waits for the first if there is none. Ack what is done; the rest is
    given again when the lease ends."""
    check_at_most("bytes of a pull's body", len(await request.body()), limits.PULL_BODY_BYTES_MAX)
    taken: list[shoal.Message] = []
    left = True
    try:
        with gateway.pulls.call():
            async with Tasks("pull") as tasks:
                gone = tasks.start("gone", until_gone(request.receive))
                pulling = tasks.start("pull", _pull(gateway, queue, wanted or models.Pull(), gone, taken), awaited=True)
                await asyncio.wait([pulling, gone], return_when=asyncio.FIRST_COMPLETED)
                answer = pulling.result() if pulling.done() else _answer([])
        left = (gone.done() and not gone.cancelled()) or await request.is_disconnected()
        return _answer([]) if left else answer
    finally:
        if left:
            for message in taken:
                message.give_back()
        else:
            gateway.metrics.pulled.inc(len(taken))


@router.post("/v1/queues/{queue}/acks", status_code=204, response_class=Response)
async def ack(request: Request, gateway: TheGateway, queue: QueueName, acks: models.Acks) -> None:
    """Acks messages of the queue, whether a pull or a stream got them, here or through another gateway. A message that
    is not given out now stays as it is."""
    for part, deadline_s in _in_parts(await _named(request, gateway, acks)):
        await gateway.leases.ack(queue, part, deadline_s=deadline_s)


@router.post("/v1/queues/{queue}/nacks", status_code=204, response_class=Response)
async def nack(request: Request, gateway: TheGateway, queue: QueueName, nacks: models.Nacks) -> None:
    """Gives messages of the queue back, whether a pull or a stream got them, here or through another gateway: they are
    delivered again, at once or after a delay. A message that is not given out now stays as it is."""
    for part, deadline_s in _in_parts(await _named(request, gateway, nacks)):
        await gateway.leases.nack(queue, part, delay_s=nacks.delay_ms / 1000, deadline_s=deadline_s)


@router.get(
    "/v1/queues/{queue}/events",
    response_class=Response,
    responses={
        200: {
            "description": "One event a message, as it comes, a live one without id and offset; an event `gap` for"
            " what does not come any more; a comment every 15 s.",
            "content": {
                events.MEDIA_TYPE: {
                    "schema": {"type": "string"},
                    "example": 'id: group-7+42\nevent: message\ndata: {"id": "group-7+42", "key": "group-7"}\n\n',
                }
            },
        }
    },
)
async def stream(
    request: Request,
    gateway: TheGateway,
    queue: QueueName,
    ack: Annotated[
        Literal["explicit", "auto"],
        Query(description="explicit: by POST .../acks; auto: once written, with X-Shoal", examples=["auto"]),
    ] = "explicit",
    x_shoal: Annotated[
        Literal["1"] | None, Header(description="needed for ack=auto: no page of others can send it", examples=["1"])
    ] = None,
) -> Response:
    """Sends messages as they come, as server-sent events. What was not acked when the stream ends goes to the next one.

    With `ack=auto` a GET changes the queue's state, so it needs the header `X-Shoal: 1`. A browser never sends it for a
    link, image or form. For a script of another origin the browser asks first, and that is refused.
    """
    if ack == "auto" and x_shoal is None:
        raise Malformed("ack=auto acks what it writes: it needs the header X-Shoal: 1", subject="x-shoal")
    gateway.check_running()
    opened = await while_wanted(request, gateway.push.open(queue))
    return events.EventResponse(gateway.push, opened, gateway.metrics, ack == "auto")


async def _pull(
    gateway: Gateway, queue: bytes, wanted: models.Pull, gone: asyncio.Task[None], taken: list[shoal.Message]
) -> JSONResponse:
    """Answers a pull, with messages or once the time is over. A caller that leaves while it waits takes nothing.
    `taken`: gets what the answer brings."""
    loop = asyncio.get_running_loop()
    end = loop.time() + wanted.wait_s
    seen = -1
    gaps: list[shoal.Gap] = []
    while True:
        async with gateway.pulls.place(show(queue)) as bytes_max:
            found = await _take(gateway, queue, wanted, end, bytes_max, gaps.append)
            left_s = end - loop.time()
            taken += found
            if found or gaps or left_s <= 0 or gateway.stopping:
                return _answer(found, gaps)
        seen = await gateway.arrivals.wait(queue, seen, left_s, gone)
        if gone.done():
            return _answer([])


async def _take(
    gateway: Gateway,
    queue: bytes,
    wanted: models.Pull,
    end: float,
    bytes_max: int,
    on_gap: Callable[[shoal.Gap], None],
) -> list[shoal.Message]:
    """Returns the messages there are now. A silent slice is waited for as messages are; raises Unavailable only once
    the time is over."""
    try:
        return await gateway.leases.pull(
            queue, wanted.messages, lease_ms=wanted.lease_ms, bytes_max=bytes_max, on_gap=on_gap
        )
    except Unavailable:
        if asyncio.get_running_loop().time() >= end or gateway.stopping:
            raise
        return []


def _answer(found: list[shoal.Message], gaps: Sequence[shoal.Gap] = ()) -> JSONResponse:
    shown: dict[str, Any] = {"messages": [messages.shown(message) for message in found]}
    if gaps:
        shown["gaps"] = [messages.shown_gap(gap) for gap in gaps]
    return JSONResponse(shown)


async def let_go(request: Request, forms: list[Any]) -> None:
    """Frees the forms of a request and the JSON that they were made from, which FastAPI keeps until the answer. While a
    slice is slow, they would take ten times the memory of the messages themselves."""
    forms.clear()
    parsed = await request.json()  # Returns what is parsed already.
    if isinstance(parsed, dict):
        parsed.clear()


async def between_steps(number: int) -> None:
    """Lets other requests go between the steps in which many things are taken. `number`: how many are taken so far."""
    if number and number % limits.STEP_VALUES == 0:
        await asyncio.sleep(0)


async def _named(request: Request, gateway: Gateway, acks: models.Acks) -> list[shoal.Done]:
    values = len(acks.ids) + len(acks.ranges)
    return await gateway.large_work.do(request.scope, values, lambda: done_of(acks))


def _in_parts(done: list[shoal.Done]) -> Iterator[tuple[list[shoal.Done], float]]:
    """Yields what acks name in parts, each with the seconds that are left for it."""
    clock = asyncio.get_running_loop().time
    end = clock() + limits.DEADLINE_S
    for start in range(0, len(done), limits.ACKS_PER_STEP):
        yield done[start : start + limits.ACKS_PER_STEP], max(end - clock(), limits.LAST_WORDS_S)


def _parts_of(batch: models.PublishBatch) -> tuple[list[bytes], list[dict[str, bytes] | None]]:
    """Returns the bodies and the headers of a batch. Raises Malformed."""
    bodies = [messages.body_of(one.body, one.body_base64) for one in batch.messages]
    return bodies, [messages.headers_of(one.headers, one.headers_base64) for one in batch.messages]


_Single = tuple[bytes, bytes, dict[str, bytes] | None, bool, float | None, bool, float | None]


def _singles_of(many: models.PublishMany) -> list[_Single]:
    """Returns the messages to different keys as the client takes them. Raises Malformed, InvalidName."""
    return [
        (
            names.given("key", one.key, one.key_encoded),
            messages.body_of(one.body, one.body_base64),
            messages.headers_of(one.headers, one.headers_base64),
            one.mandatory,
            time_of(one.not_before_ms),
            one.live,
            seconds_of(one.ttl_ms),
        )
        for one in many.messages
    ]


def time_of(unix_ms: int | None) -> float | None:
    """Returns an absolute time as the client takes it, in seconds; None for None. Raises OutOfRange."""
    if unix_ms is not None and unix_ms < TIME_S_MIN * 1000:
        raise OutOfRange(
            f"not_before_ms is {unix_ms}; it is Unix time in milliseconds, {TIME_S_MIN * 1000} to {TIME_S_MAX * 1000}",
            subject="not_before_ms",
            limit=TIME_S_MIN * 1000,
            value=unix_ms,
        )
    return None if unix_ms is None else unix_ms / 1000


def seconds_of(milliseconds: int | None) -> float | None:
    """Returns a time to live as the client takes it; None for None: for ever."""
    return None if milliseconds is None else milliseconds / 1000


def done_of(acks: models.Acks) -> list[shoal.Done]:
    """Returns what acks name. Raises Malformed, InvalidName, OutOfRange."""
    done: list[shoal.Done] = []
    for text in acks.ids:
        key, offset = names.from_message_id(text)
        done.append(shoal.Done(key, offset, offset + 1))
    for one in acks.ranges:
        if one.end <= one.first:
            problem = f"range {one.first} to {one.end} is empty: end is the first offset that is not meant"
            raise OutOfRange(problem, subject="end", limit=one.first, value=one.end)
        done.append(shoal.Done(names.given("key", one.key, one.key_encoded), one.first, one.end))
    return done


def receipt_of(gateway: Gateway, receipt: shoal.Receipt) -> models.Receipt:
    """Returns the form of a receipt, and counts its messages."""
    gateway.metrics.published.inc(receipt.messages)
    return models.Receipt(
        **names.fields("key", encode_name(receipt.key, "key")),
        offset=receipt.offset,
        queues=receipt.queues,
        consumed=receipt.consumed,
        messages=receipt.messages,
        delayed=receipt.delayed,
    )


async def _outcome(gateway: Gateway, receipt: asyncio.Future[shoal.Receipt] | ShoalError) -> models.Outcome:
    if isinstance(receipt, ShoalError):
        return models.Outcome(problem=problem.body_of(receipt))
    try:
        return models.Outcome(receipt=receipt_of(gateway, await receipt))
    except ShoalError as error:
        return models.Outcome(problem=problem.body_of(error))
