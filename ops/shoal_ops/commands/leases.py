"""`shoal pull --lease-ms`, `shoal ack`, `shoal nack`: messages that are taken by one command and done by another.

They go by queue, key and offset, so any consumer's messages can be meant. Not here: the pull that acks what it prints
(verbs.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import shoal
from shoal_contract.names import encode_name, text
from shoal_ops import output
from shoal_ops.commands.verbs import connect, tell_gap, tell_pulled
from shoal_ops.limits import BINDINGS_LISTED_MAX, SLICE_DEADLINE_S
from shoal_ops.offsets import parse_offsets


async def pull(at: str, queue: str, messages: int, lease_ms: int, as_json: bool) -> None:
    """Prints messages, which are then taken until they are acked or nacked, or the lease ends. What is not printed, as
    the reader is gone or the command interrupted, is given back."""
    async with connect(at) as broker:
        leases = shoal.Leases(broker)
        await tell_pulled(await leases.pull(queue, messages, lease_ms=lease_ms, on_gap=tell_gap), as_json)


async def ack(at: str, queue: str, key: str, offsets: Sequence[str], as_json: bool) -> None:
    """Acks messages of a queue, and says what its backlog of the key was before and is now: an ack of what is not given
    out changes nothing, and slices do not tell. Raises NoSuchQueue; BadCall where the queue is not bound to the key."""
    done = parse_offsets(key, offsets)
    async with connect(at) as broker:
        leases = shoal.Leases(broker)
        await _check_exists(leases, queue)
        before = await _backlogs(broker, queue)
        name = text(encode_name(key, "key"))
        if before is not None and name not in before and len(before) < BINDINGS_LISTED_MAX:
            shown = output.shown(key)
            raise shoal.BadCall(f"queue {output.shown(queue)} is not bound to {shown}: there is nothing to ack")
        await leases.ack(queue, done)
        after = None if before is None or name not in before else await _backlogs(broker, queue)
    if before is None or after is None:
        _tell("ack", {}, queue, key, done, as_json)
        return
    was, now = before[name], after.get(name, 0)
    more = f"; the backlog was {was} and is {now}" + (": it seems that none was given out" if was == now else "")
    _tell("ack", {"backlog_before": was, "backlog_after": now}, queue, key, done, as_json, more)


async def _backlogs(broker: shoal.Broker, queue: str) -> dict[str, int] | None:
    """Returns key -> how many of its messages the queue still has to get; not all keys, if they are BINDINGS_LISTED_MAX
    or more. None where a slice does not answer, or the list is too long for it: that is no reason not to ack."""
    try:
        found = await broker.describe(queue, bindings=True, deadline_s=SLICE_DEADLINE_S)
    except (shoal.OutcomeUnknown, shoal.ResourceExhausted):
        return None
    return {one.key: one.messages for one in found.bindings}


async def nack(at: str, queue: str, key: str, offsets: Sequence[str], delay_s: float, as_json: bool) -> None:
    """Gives messages of a queue back. Raises NoSuchQueue; OutOfRange for a delay of more than a day."""
    back = parse_offsets(key, offsets)
    async with connect(at) as broker:
        leases = shoal.Leases(broker)
        await _check_exists(leases, queue)
        await leases.nack(queue, back, delay_s=delay_s)
    _tell("nack", {"delay_s": delay_s}, queue, key, back, as_json)


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
        output.say_json({f"{verb}ed": {"queue": queue, "key": key, "messages": messages} | dict(terms)})
    else:
        of = f"{output.count(messages, 'message')} of {output.shown(key)}"
        output.say(f"asked to {verb} {of}{more or '; what was not given out stays as it is'}")
