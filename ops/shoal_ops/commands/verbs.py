"""The verbs of the broker, one short function each: it calls the client and prints the answer as text or JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

import shoal
from shoal_contract.limits import BODY_BYTES_MAX, KEY_UNACKED_MAX
from shoal_ops import output
from shoal_ops.headers import dead_letter_text, headers_json, parse_headers
from shoal_ops.limits import FULL_KEYS_NAMED_MAX, TAIL_QUEUES_MAX, VERB_DEADLINE_S
from shoal_ops.standard_input import read_standard_input
from shoal_ops.starts import parse_start

DELAYED: Final = "on disk: it is published when its time comes, or at once if that is past, and has no offset yet"
"""Said of a publish with a time. Only the slice knows whether that is past, by its own clock."""


def connect(at: str, on_error: Callable[[Exception], None] | None = None) -> shoal.Broker:
    """Returns a connection to the cluster. `at`: one redirector, or several separated by commas."""
    return shoal.connect(*at.split(","), deadline_s=VERB_DEADLINE_S, on_error=on_error)


async def declare(at: str, queues: Sequence[str], options: shoal.QueueOptions, as_json: bool) -> None:
    async with connect(at) as broker:
        await broker.declare(queues, options)
        await _remark_unbound(broker, options.dead_letter)
    if as_json:
        output.say_json({"declared": list(queues)})
        return
    for queue in dict.fromkeys(queues):
        output.say(f"{output.shown(queue)}: declared")


async def _remark_unbound(broker: shoal.Broker, dead_letter: str | bytes) -> None:
    """Says so where no queue is bound to a dead-letter key: what comes there is not kept."""
    if not dead_letter:
        return
    with suppress(shoal.ShoalError):  # A remark only: what was asked for is done.
        if not (await broker.describe_key(dead_letter)).queues:
            shown = output.shown(dead_letter)
            output.remark(f"no queue is bound to the dead-letter key {shown}: messages that come there are not kept")


async def bind(at: str, queue: str, keys: Sequence[str], start_text: str, as_json: bool) -> None:
    """Binds a queue. `start_text`: a checked `--start`. Raises OutOfRange."""
    start = parse_start(start_text)
    async with connect(at) as broker:
        offsets = await broker.bind(queue, keys, start=start)
    for key, first in offsets.items():
        if isinstance(first, shoal.BoundBefore):
            output.remark(f"{output.shown(key)}: bound before, from offset {first}: it stays as it is")
        if not start.recovered(first):
            output.remark(f"{output.shown(key)}: offsets {start.value} to {first - 1} are gone")
    _tell_offsets(queue, {output.plain(key): offset for key, offset in offsets.items()}, "from offset", as_json)


async def unbind(at: str, queue: str, keys: Sequence[str], discard: bool, as_json: bool) -> None:
    async with connect(at) as broker:
        offsets = await broker.unbind(queue, keys, discard=discard)
    _tell_offsets(queue, {output.plain(key): offset for key, offset in offsets.items()}, "up to offset", as_json)


async def publish(
    at: str,
    key: str,
    body: str | None,
    mandatory: bool,
    live: bool,
    not_before: datetime | float | None,
    ttl: float | None,
    idempotency_key: str | None,
    headers: Sequence[str] | None,
    as_json: bool,
) -> None:
    """Publishes one message. `body` None: all of standard input."""
    data = await _body(body)
    async with connect(at) as broker:
        receipt = await broker.publish(
            key,
            data,
            headers=parse_headers(headers),
            mandatory=mandatory,
            not_before=not_before,
            live=live,
            ttl=ttl,
            idempotency_key=idempotency_key,
        )
    if as_json:
        output.say_json(receipt._asdict())
    elif receipt.delayed:
        output.say(DELAYED)
    elif live and receipt.queues:
        output.say(f"live, to {output.count(receipt.queues, 'queue')}, {receipt.consumed} of them consumed now")
    elif receipt.offset:
        output.say(
            f"offset {receipt.offset}, to {output.count(receipt.queues, 'queue')}, {receipt.consumed} consumed now"
        )
    else:
        output.say(f"no queue is bound to {key}: the message is not kept")


async def _body(body: str | None) -> bytes:
    """Returns the bytes as they were given. Raises TooLarge."""
    if body is None:
        return await read_standard_input("the body", BODY_BYTES_MAX)
    return body.encode("utf-8", "surrogateescape")


async def farewell(
    at: str,
    queue: str,
    key: str | None,
    body: str | None,
    after_s: int,
    headers: Sequence[str] | None,
    as_json: bool,
) -> None:
    """Gives a queue a farewell. `key` None: takes it back. `body` None: all of standard input."""
    async with connect(at) as broker:
        if key is None:
            await broker.farewell(queue)
        else:
            data = await _body(body)
            await broker.farewell(queue, key, data, headers=parse_headers(headers), after_s=after_s)
    if as_json:
        output.say_json({"queue": queue, "key": key, "after_s": after_s})
    elif key is None:
        output.say(f"queue {output.shown(queue)} has no farewell any more")
    else:
        output.say(f"to {key}, once no session has consumed {queue} for {output.count(after_s, 'second')}")


async def pull(at: str, queue: str, messages: int, peek: bool, as_json: bool) -> None:
    """Prints messages before it acks them, so that messages lost in a broken pipe are delivered again."""
    async with connect(at) as broker:
        if peek:
            for message in await broker.peek(queue, messages):
                tell_message(message, as_json)
            return
        left = messages
        while left > 0:  # A pull may bring fewer though more wait, and no more of a key until some are acked.
            try:
                found = await broker.pull(queue, left, on_gap=tell_gap)
            except shoal.OutcomeUnknown:
                if left < messages:
                    return  # No slice that answers has more.
                raise
            if not found:
                return
            await tell_pulled(found, as_json)
            await broker.ack(*found)
            await broker.flush()
            left -= len(found)


async def tail(at: str, queues: Sequence[str], messages: int | None, ack: bool, as_json: bool) -> None:
    """Prints messages until `messages` of them came; with None, for ever. Without `ack` it only looks: what it printed
    counts no delivery."""
    if len(queues) > TAIL_QUEUES_MAX:
        raise shoal.BadCall(f"{len(queues)} queues to follow; the limit is {TAIL_QUEUES_MAX}")
    on_error = None if ack else _tell_held
    async with connect(at, on_error) as broker, broker.consume(queues, on_gap=tell_gap) as inbox:
        seen = 0
        printed: list[shoal.Message] = []  # Bounded by the queues' windows.
        try:
            async for message in inbox:
                tell_message(message, as_json)
                if ack:
                    await message.ack()
                elif not message.live:
                    printed.append(message)
                seen += 1
                if seen == messages:
                    return
        finally:
            inbox.stop(*queues)
            for message in printed:
                message.give_back()


def _tell_held(error: Exception) -> None:
    """Says what to do where a tail holds as much as a slice gives: the library's own advice is for programs."""
    if isinstance(error, shoal.ResourceExhausted):
        output.remark(
            "shoal tail holds what it has printed until it ends, and a slice gives no more of a queue meanwhile: with"
            " --ack it goes on, and what it prints is gone"
        )


async def describe(at: str, queue: str, as_json: bool) -> None:
    async with connect(at) as broker:
        found = await broker.describe(queue, bindings=True)
        await _remark_unbound(broker, found.options.dead_letter)
    if not found.exists:
        shown = output.shown(queue)
        text = f"queue {shown} does not exist; declare it first (--key describes a key)"
        raise shoal.NoSuchQueue(text, subject=shown)
    if as_json:
        as_text = {"dead_letter": output.plain(found.options.dead_letter)}
        farewell = found.farewell and asdict(found.farewell) | {"key": output.plain(found.farewell.key)}
        output.say_json(asdict(found) | {"options": asdict(found.options) | as_text, "farewell": farewell})
        return
    options = found.options
    told = {
        "queue": output.shown(queue),
        "expires after": f"{options.expires_after_s} s" if options.expires_after_s else "never",
        "exclusive": options.exclusive,
    }
    if options.ack_timeout_ms:
        told["ack timeout"] = f"{options.ack_timeout_ms} ms"
    if options.max_deliveries:
        told["deliveries at most"] = str(options.max_deliveries)
        told["dead-letter key"] = output.shown(options.dead_letter) or "none: then they are dropped"
    if found.farewell is not None:
        told["farewell"] = _farewell_text(found.farewell)
    output.facts(
        told
        | {"backlog messages": found.messages, "backlog bytes": found.body_bytes}
        | {"attached sessions": found.attached_sessions, "consumed": "yes" if found.consumed else "no"}
        | {"unacked messages": found.unacked}
        | {"bindings": found.binding_count}
    )
    rows = [
        (output.shown(one.key), one.start, one.cursor, one.end or "bound", one.messages, one.unacked)
        for one in found.bindings
    ]
    if rows:
        output.table(("key", "start", "cursor", "end", "backlog", "unacked"), rows)
    tell_full([one.key for one in found.bindings if one.full])


def tell_full(full: Sequence[str | bytes]) -> None:
    """Says why nobody gets more of these keys, if there are any."""
    if full:
        output.remark(_full_text([output.shown(key) for key in full]))


def _full_text(keys: list[str]) -> str:
    named = f"{', '.join(keys[:FULL_KEYS_NAMED_MAX])}{' and others' if len(keys) > FULL_KEYS_NAMED_MAX else ''}"
    return (
        f"as much is unacked as may be of one key ({KEY_UNACKED_MAX:,} messages; those that were given back with a"
        " delay that is not over count, too, and so do stretches that were acked above an unacked message), so no"
        f" consumer of the queue gets more of: {named}. It goes on once some are acked, a consumer that has them ends,"
        " their ack timeout or lease is over, or the delay with which they were given back. Where far fewer are"
        " unacked, the slice's memory of attached queues is full: it goes on once there is room"
    )


def _farewell_text(kept: shoal.FarewellDescription) -> str:
    """Says where a farewell is published, and when."""
    after = f"to {output.shown(kept.key)}, {kept.after_s} s after the last session has left"
    if not kept.due_ms:
        return after
    return f"{after}: at {datetime.fromtimestamp(kept.due_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


async def describe_key(at: str, key: str, as_json: bool) -> None:
    async with connect(at) as broker:
        found = await broker.describe_key(key)
    if as_json:
        output.say_json(asdict(found))
    elif not found.exists:
        output.say(f"key {output.shown(key)} keeps nothing")
    else:
        options = {name: value for name, value in asdict(found.options).items() if value}
        told = {name: value for name, value in asdict(found).items() if name != "options"}
        output.facts(told | {"key": output.shown(key)} | {name.replace("_", " "): at for name, at in options.items()})


def _tell_offsets(queue: str, offsets: dict[str, int], what: str, as_json: bool) -> None:
    if as_json:
        output.say_json({"queue": queue, "offsets": offsets})
        return
    for key, offset in offsets.items():
        shown = output.shown(key)
        output.say(f"{shown}: {what} {offset}" if offset else f"{shown}: was not bound")


async def tell_pulled(found: Sequence[shoal.Message], as_json: bool) -> None:
    """Prints messages that a pull took. What cannot be printed, as the reader is gone or the command interrupted, is
    given back: it was no delivery."""
    printed = 0
    try:
        for message in found:
            tell_message(message, as_json)
            printed += 1
            await asyncio.sleep(0)  # An interrupt is taken here; else it would end what gives back.
    finally:
        for message in found[printed:]:
            message.give_back()


def tell_message(message: shoal.Message, as_json: bool) -> None:
    """Prints one message: a line with its queue, key, offset, the headers of a dead letter, and body; or JSON."""
    if not as_json:
        head = f"{output.shown(message.queue_bytes)} {output.shown(message.key_bytes)} {_place(message)}"
        output.say_exactly(f"{head} {dead_letter_text(message.headers)}{output.body_text(message.body)}")
        return
    found = {"queue": message.queue, "key": message.key, "offset": message.offset, "time_ms": message.time_ms}
    found |= {"redelivered": message.redelivered} | ({"live": True} if message.live else {})
    if not message.live and message.expires_ms:
        found["expires_ms"] = message.expires_ms
    output.say_json(found | headers_json(message.headers) | output.body_json(message.body))


def tell_gap(gap: shoal.Gap) -> None:
    """Says on standard error what does not come, so that what comes can be piped on."""
    place = f"{output.shown(gap.queue_bytes)} {output.shown(gap.key_bytes)}"
    output.remark(f"{place} {gap.first} to {gap.end - 1} are gone: {gap.why}")


def _place(message: shoal.Message) -> str:
    return "live" if message.live else str(message.offset)
