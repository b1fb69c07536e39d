"""Answers requests for transactions: changes to one slice, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fastapi import APIRouter, Request

import shoal
from shoal_contract.errors import Malformed, check_at_most
from shoal_ops.http import limits, messages, models, names
from shoal_ops.http import models_transactions as forms
from shoal_ops.http.bounded_json import BoundedRoute
from shoal_ops.http.parameters import NO_IDEMPOTENCY_KEY, TheGateway
from shoal_ops.http.routes_messages import between_steps, done_of, let_go, receipt_of, seconds_of, time_of
from shoal_ops.http.routes_queues import offsets_of, start_of

router = APIRouter(tags=["transactions"], route_class=BoundedRoute)

Answer = Callable[[], forms.Done]
"""Returns what a step answered, once the transaction is committed."""


@router.post(
    "/v1/transactions",
    response_model=forms.Committed,
    response_model_exclude_none=True,
    dependencies=NO_IDEMPOTENCY_KEY,
)
async def transact(request: Request, gateway: TheGateway, wanted: forms.Transaction) -> forms.Committed:
    """Does all steps in one record, or none of them.

    All keys must lie on one slice, or it answers CrossSlice; keys that begin with the same tag in braces do. If any
    step is refused, the answer is its problem, nothing is done, and no part of it is seen. A queue that is declared
    needs the tag in its name, too; queues that are only bound may have their home anywhere.
    """
    _check_names(wanted.steps)
    acks = [step.ack for step in wanted.steps if step.ack is not None]
    values = sum(len(one.ids) + len(one.ranges) for one in acks)
    acked = await gateway.large_work.do(request.scope, values, lambda: iter(_merged(acks)))
    answers: list[Answer] = []
    async with gateway.broker.transaction() as transaction:
        async with gateway.large_work.turn(request.scope, len(wanted.steps)):
            for number, step in enumerate(wanted.steps):
                await between_steps(number)
                answers.append(_take(gateway, transaction, number, step, acked))
        await let_go(request, wanted.steps)
    done: list[forms.Done] = []
    async with gateway.large_work.turn(request.scope, len(answers)):
        for number, answer in enumerate(answers):
            await between_steps(number)
            done.append(answer())
    return forms.Committed(steps=done)


def _check_names(steps: Sequence[forms.Step]) -> None:
    """Refuses steps that name more keys and queues than a transaction may have, before one of them is made. Raises
    TooLarge."""
    lists = [given for step in steps for given in _names_of(step)]
    count = 0
    for given in lists:
        count += len(set(given))  # A step may name one twice.
        if count > limits.TRANSACTION_STEPS_MAX:
            check_at_most("keys and queues of a transaction", sum(map(len, lists)), limits.TRANSACTION_STEPS_MAX)


def _names_of(step: forms.Step) -> Iterator[Sequence[str]]:
    if step.declare is not None:
        yield from (step.declare.queues, step.declare.queues_encoded)
    for keyed in (step.configure, step.bind, step.unbind):
        if keyed is not None:
            yield from (keyed.keys, keyed.keys_encoded)
    if step.publish is not None:
        yield ("",)  # One key.


def _merged(acks: Sequence[forms.AckStep]) -> list[list[shoal.Done]]:
    """Returns what each of these steps acks, sorted, without overlaps. The library adds range after range, which takes
    time in the square of their number: so it is given no more of them than a transaction may have.

    Raises Malformed, InvalidName, OutOfRange, TooLarge.
    """
    found = []
    for step in acks:
        merged: list[shoal.Done] = []
        for one in sorted(done_of(step)):
            if merged and (last := merged[-1]).key == one.key and one.first <= last.end:
                merged[-1] = last._replace(end=max(last.end, one.end))
            else:
                merged.append(one)
        found.append(merged)
    count = sum(map(len, found))
    check_at_most("ranges of offsets that a transaction acks", count, limits.TRANSACTION_STEPS_MAX)
    return found


def _take(
    gateway: TheGateway,
    transaction: shoal.Transaction,
    number: int,
    step: forms.Step,
    acked: Iterator[list[shoal.Done]],
) -> Answer:
    """Adds a step. `acked`: what the next step that acks names. Raises Malformed, InvalidName, TooLarge, CrossSlice."""
    given = [name for name in forms.Step.model_fields if getattr(step, name) is not None]
    if len(given) != 1:
        what = " and ".join(given) or "nothing"
        raise Malformed(f"step {number} names {what}; it needs exactly one verb", subject=f"steps.{number}")
    if step.declare is not None:
        return _declare(transaction, step.declare)
    if step.configure is not None:
        configured = names.all_given("key", step.configure.keys, step.configure.keys_encoded)
        transaction.configure(configured, step.configure.values())
        return lambda: forms.Done(configured=len(set(configured)))
    if step.bind is not None:
        keys = names.all_given("key", step.bind.keys, step.bind.keys_encoded)
        start = start_of(step.bind)
        bound = transaction.bind(_queue(step.bind), keys, start=start)
        return lambda: forms.Done(offsets=offsets_of(bound.value, start).offsets)
    if step.unbind is not None:
        keys = names.all_given("key", step.unbind.keys, step.unbind.keys_encoded)
        left = transaction.unbind(_queue(step.unbind), keys, discard=step.unbind.discard)
        return lambda: forms.Done(offsets=offsets_of(left.value).offsets)
    if step.publish is not None:
        return _publish(gateway, transaction, step.publish)
    assert step.ack is not None
    done = next(acked)
    if not done:
        raise Malformed(f"step {number} acks no message: give ids or ranges", subject=f"steps.{number}")
    transaction.ack_done(_queue(step.ack), done)
    return lambda: forms.Done(acked=sum(one.end - one.first for one in done))


def _declare(transaction: shoal.Transaction, wanted: models.DeclareQueues) -> Answer:
    queues = names.all_given("queue", wanted.queues, wanted.queues_encoded)
    transaction.declare(queues, wanted.values())
    return lambda: forms.Done(declared=len(set(queues)))


def _publish(gateway: TheGateway, transaction: shoal.Transaction, message: forms.PublishStep) -> Answer:
    result = transaction.publish(
        names.given("key", message.key, message.key_encoded),
        messages.body_of(message.body, message.body_base64),
        headers=messages.headers_of(message.headers, message.headers_base64),
        mandatory=message.mandatory,
        not_before=time_of(message.not_before_ms),
        ttl=seconds_of(message.ttl_ms),
    )
    return lambda: forms.Done(receipt=receipt_of(gateway, result.value))


def _queue(step: forms.QueueOfStep) -> bytes:
    return names.given("queue", step.queue, step.queue_encoded)
