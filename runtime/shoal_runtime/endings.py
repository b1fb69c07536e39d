"""Chooses the connections that end where memory is short or a port is nearly full, so that honest clients lose least.

Belongs here: what a connection holds as far as is known, and which ones end first. Not here: when connections end, and
what is said of it (memory_guard); what is known of a connection (unread).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import nlargest
from operator import itemgetter
from random import Random

from shoal_runtime.limits import (
    BUFFERED_BYTES_MAX,
    CALL_HELD_BYTES,
    CONNECTION_HELD_BYTES,
    CONNECTIONS_ENDED_PER_LOOK,
    NEW_HELD_TIMES,
    NEW_S,
    NEW_UNREAD_BYTES_LARGE,
    NEW_UNREAD_BYTES_MIN,
    PORT_CROWDED_PARTS,
    PORT_ROOM_PARTS,
    RESTS_S,
    SHARE_ENDED_MAX,
    UNREAD_ENDED_AT_ONCE_BYTES,
    UNREAD_ENDED_BYTES_LEAST,
    UNREAD_ENDED_BYTES_MIN,
)
from shoal_runtime.unread import Client


def estimated_bytes(client: Client) -> int:
    """Returns what a process holds for a client, besides what is known to be unread and unsent: at least this, or as
    much more as may have come in the place of headers."""
    held_bytes = CONNECTION_HELD_BYTES + min(client.burst, BUFFERED_BYTES_MAX) + client.calls * CALL_HELD_BYTES
    return held_bytes + client.doubtful


def size_bytes(client: Client) -> int:
    """Returns the unread and unsent bytes of a client that count now."""
    now_bytes = client.unread[-1]
    unread_bytes = now_bytes if now_bytes >= UNREAD_ENDED_AT_ONCE_BYTES else client.standing
    return unread_bytes + client.standing_kernel


def largest(clients: Collection[Client], too_much_bytes: int) -> list[Client]:
    """Returns the clients with most unread or unsent bytes: all that have more than calls can have, and as many as hold
    `too_much_bytes` together. Where many clients hold little each but too much together, a client with fewer bytes is
    chosen too."""
    least_bytes = max(UNREAD_ENDED_BYTES_LEAST, min(UNREAD_ENDED_BYTES_MIN, too_much_bytes // max(1, 2 * len(clients))))
    sizes = ((size_bytes(one), one.address, one) for one in clients)
    chosen: list[Client] = []
    for unread_bytes, _, one in sorted((one for one in sizes if one[0] >= least_bytes), reverse=True):
        enough = too_much_bytes <= 0 and unread_bytes < UNREAD_ENDED_AT_ONCE_BYTES
        if enough or len(chosen) == CONNECTIONS_ENDED_PER_LOOK:
            break
        too_much_bytes -= unread_bytes
        chosen.append(one)
    return chosen


def ordinary_new_bytes(clients: Collection[Client], now_s: float) -> int:
    """Returns what new clients hold if each has one call, at most."""
    new = (one for one in clients if now_s - one.since_s < NEW_S)
    return sum(CONNECTION_HELD_BYTES + min(one.calls, 1) * CALL_HELD_BYTES for one in new)


def new_holders(clients: Collection[Client], too_much_bytes: int, now_s: float) -> list[Client]:
    """Returns new clients, to which the bound of headers does not apply yet. All with NEW_UNREAD_BYTES_LARGE unread
    bytes, because they send on; as many others as may hold `too_much_bytes` together, those with most first; and, if
    there are any, those without calls: what they sent may lie before gRPC."""
    found = sorted((one for one in clients if now_s - one.since_s < NEW_S), key=lambda one: -one.unread[-1])
    chosen: list[Client] = []
    for one in found[:CONNECTIONS_ENDED_PER_LOOK]:
        least_bytes = NEW_UNREAD_BYTES_MIN if too_much_bytes > 0 else NEW_UNREAD_BYTES_LARGE
        if one.unread[-1] >= least_bytes or (chosen and not one.calls):
            chosen.append(one)
        too_much_bytes -= NEW_HELD_TIMES * one.unread[-1]
    return chosen


def resting(idle: Collection[Client], too_much_bytes: int, now_s: float) -> list[Client]:
    """Returns clients of these, which have no calls, that rest long enough and hold `too_much_bytes` together: first
    those for which gRPC keeps most, then those that rest longest."""
    found = [one for one in idle if one.rests_since_s <= now_s - RESTS_S]
    found.sort(key=lambda one: (-min(one.burst, BUFFERED_BYTES_MAX), one.rests_since_s))
    chosen: list[Client] = []
    for one in found[:CONNECTIONS_ENDED_PER_LOOK]:
        if too_much_bytes <= 0:
            break
        too_much_bytes -= estimated_bytes(one)
        chosen.append(one)
    return chosen


def by_share(clients: Collection[Client], too_much_bytes: int, chance: Random) -> list[Client]:
    """Returns clients that hold `too_much_bytes` together, as far as is known, at most SHARE_ENDED_MAX. The chance of
    each is its share of all that is held: however clients divide what they hold among connections, those pay that hold
    it. (Weighted sampling without replacement, Efraimidis and Spirakis 2006.)"""
    weighted = ((estimated_bytes(one), one) for one in clients)
    drawn = [(chance.random() ** (1 / held_bytes), held_bytes, one) for held_bytes, one in weighted]
    chosen: list[Client] = []
    for _, held_bytes, one in nlargest(SHARE_ENDED_MAX, drawn, key=itemgetter(0)):
        if too_much_bytes <= 0:
            break
        too_much_bytes -= held_bytes
        chosen.append(one)
    return chosen


def crowding(clients: Collection[Client], ports: Mapping[int, int], now_s: float) -> dict[int, list[Client]]:
    """Returns the ports that are nearly full, each with the clients that end so that new ones find room: those without
    calls, first those that rest longest. `ports`: the number of connections that each port takes."""
    there: dict[int, list[Client]] = {port: [] for port in ports}
    for one in clients:
        if one.port in there:
            there[one.port].append(one)
    chosen: dict[int, list[Client]] = {}
    for port, connections_max in ports.items():
        if connections_max - len(there[port]) >= connections_max / PORT_CROWDED_PARTS:
            continue
        too_many = len(there[port]) - connections_max + connections_max // PORT_ROOM_PARTS
        found = [one for one in there[port] if not one.calls and one.rests_since_s <= now_s - RESTS_S]
        chosen[port] = sorted(found, key=lambda one: one.rests_since_s)[:too_many]
    return chosen
