"""Makes frames before the clock starts: a change is encoded once, and only its two numbers are added when it is sent.

The generator shares two cores with the slice: what the generator uses, the slice lacks. Not here: sending
(load_session.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.population import Population, queue_name

Frame = bytes
"""A SessionRequest without `sequence` and `settled`; protobuf's fields may follow each other in any order."""


def change_frame(steps: Iterable[wire.Step]) -> Frame:
    return wire.SessionRequest(change=wire.Change(steps=steps).SerializeToString()).SerializeToString()


def numbered(frame: Frame, sequence: int, settled: int) -> bytes:
    return wire.SessionRequest(sequence=sequence, settled=settled).SerializeToString() + frame


def populate_frame(population: Population, queues: range) -> Frame:
    """Returns a frame with declares and first logins."""
    declares = wire.Declares(queues=[queue_name(queue) for queue in queues])
    return change_frame([wire.Step(declares=declares), wire.Step(binds=_logins(population, queues))])


def churn_frame(population: Population, leaving: Sequence[int], coming: Sequence[int]) -> Frame:
    """Returns a frame with logouts, then logins."""
    queues = [queue_name(queue) for queue in leaving]
    keys = [population.keys_of(queue) for queue in leaving]
    unbinds = wire.Unbinds(
        queues=queues, key_counts=[len(names) for names in keys], keys=[name for names in keys for name in names]
    )
    steps = [wire.Step(unbinds=unbinds)] if leaving else []
    if coming:
        steps.append(wire.Step(binds=_logins(population, coming)))
    return change_frame(steps)


def _logins(population: Population, queues: Sequence[int]) -> wire.Binds:
    keys = [population.keys_of(queue) for queue in queues]
    return wire.Binds(
        queues=[queue_name(queue) for queue in queues],
        key_counts=[len(names) for names in keys],
        keys=[name for names in keys for name in names],
    )
