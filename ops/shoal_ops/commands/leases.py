"""`shoal pull --lease-ms`, `shoal ack`, `shoal nack`: messages that are taken by one command and done by another.

They go by queue, key and offset, so any consumer's messages can be meant. Not here: the pull that acks what it prints
(verbs.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import shoal
from shoal_contract.arguments import check_delay_ms
from shoal_contract.names import encode_name, text
from shoal_ops import output
from shoal_ops.commands.verbs import connect, tell_gap, tell_message
from shoal_ops.limits import SLICE_DEADLINE_S
from shoal_ops.offsets import parse_offsets

_UNKNOWN: Final = -1
_UNBOUND: Final = -2
"""What a look at a backlog finds besides a number of messages."""


async def pull(at: str, queue: str, messages: int, lease_ms: int, as_json: bool) -> None:
    """Prints messages, which are then taken until they are acked or nacked, or the lease ends."""
    async with connect(at) as broker:
        leases = shoal.Leases(broker)
        for message in await leases.pull(queue, messages, lease_ms=lease_ms, on_gap=tell_gap):
            tell_message(message, as_json)


async def ack(at: str, queue: str, key: str, offsets: Sequence[str], as_json: bool) -> None:
    """Acks messages of a queue, and says what its backlog of the key was before and is now: an ack of what is not given
    out changes nothing, and slices do not tell. Raises NoSuchQueue; BadCall where the queue is not bound to the key."""
    done = parse_offsets(key, offsets)
    async with connect(at) as broker:
        leases = shoal.Leases(broker)
        await _check_exists(leases, queue)
        before = await _look(broker, queue, key)
        if before == _UNBOUND:
            shown = output.shown(key)
            raise shoal.BadCall(f"queue {output.shown(queue)} is not bound to {shown}: there is nothing to ack")
        await leases.ack(queue, done)
        after = _UNKNOWN if before == _UNKNOWN else await _look(broker, queue, key)
    if _UNKNOWN in (before, after):
        _tell("acked", {}, queue, key, done, as_json)
        return
    was, now = before, max(0, after)  # Once all is acked, an ended binding is gone.
    more = f"; the backlog was {was} and is {now}"
    _tell("acked", {"backlog_before": was, "backlog_after": now}, queue, key, done, as_json, more)


async def _look(broker: shoal.Broker, queue: str, key: str) -> int:
    """Returns how many messages of the key the queue still has to get; _UNBOUND; _UNKNOWN where no slice tells, which
    is no reason not to ack: one does not answer, or has more bindings than it lists."""
    try:
        found = await broker.describe(queue, bindings=True, deadline_s=SLICE_DEADLINE_S)
    except shoal.ShoalError:
        return _UNKNOWN
    name = text(encode_name(key, "key"))
    for one in found.bindings:
        if one.key == name:
            return one.messages
    in_force = [one for one in found.bindings if not one.end]
    return _UNBOUND if len(in_force) >= found.binding_count else _UNKNOWN


async def nack(at: str, queue: str, key: str, offsets: Sequence[str], delay_s: float, as_json: bool) -> None:
    """Gives messages of a queue back. Raises NoSuchQueue; OutOfRange for a delay of more than a day."""
    back = parse_offsets(key, offsets)
    check_delay_ms(delay_s)
    async with connect(at) as broker:
        leases = shoal.Leases(broker)
        await _check_exists(leases, queue)
        await leases.nack(queue, back, delay_s=delay_s)
    _tell("nacked", {"delay_s": delay_s}, queue, key, back, as_json)


async def _check_exists(leases: shoal.Leases, queue: str) -> None:
    """Raises NoSuchQueue where no slice knows the queue: an ack by itself is no error there, and would hide a name that
    is written wrong."""
    (found,) = await leases.backlogs([queue])
    if not found.exists and not found.silent:
        shown = output.shown(queue)
        raise shoal.NoSuchQueue(f"queue {shown} does not exist; declare it first", subject=shown)


def _tell(
    verb: str,
    terms: Mapping[str, float],
    queue: str,
    key: str,
    ranges: Sequence[shoal.Done],
    as_json: bool,
    more: str = "",
) -> None:
    messages = sum(one.end - one.first for one in ranges)
    if as_json:
        output.say_json({verb: {"queue": queue, "key": key, "messages": messages} | dict(terms)})
    else:
        of = f"{output.count(messages, 'message')} of {output.shown(key)}"
        output.say(f"{verb} {of}, as far as they were given out{more}")
