"""Lets residents publish to one of their groups, and notes the receipt for the checker."""

from __future__ import annotations

import shoal
from shoal_loadtest.residents.core.talk import Said, body_of
from shoal_loadtest.residents.core.windows import LOST
from shoal_loadtest.residents.scene import Scene, State, now_s


async def say(scene: Scene, seat: int, due_s: float) -> None:
    """Publishes as the resident of a seat that is online, to one of its groups: so large groups get more messages."""
    town = scene.town
    places = town.places_of(seat)
    if not places or scene.states[seat] != State.ONLINE:
        return
    place = places[scene.chance.randrange(len(places))]
    group, resident, start = town.group(place), town.resident(seat), scene.windows.start(place)
    key = town.key(group)
    number = scene.talk.next_number(group)
    said = Said(resident, group, town.generation(group), number, due_s)
    try:
        receipt = await scene.broker.publish(key, body_of(said))
    except shoal.ShoalError as error:
        scene.samples.failed("publish", error)
        return
    scene.samples.took("publish", due_s)
    scene.samples.counts["messages"] += 1
    if receipt.offset:
        scene.talk.noted(key, receipt.offset, said, now_s())
    elif start and scene.windows.start(place) == start:
        detail = f"message {number} was routed to no queue; resident {resident} is bound from {start}"
        scene.faults.add(LOST, f"key {key.decode()}", detail)
