"""Sessions that consume queues with done ranges, and looks for those that end as these take too much."""

from __future__ import annotations

from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.core.dispatch.sessions import Session

from .core_driver import CoreDriver, bind, declare, every_second, publish, with_done


def queue(core: CoreDriver, name: str, ranges: int) -> None:
    """A queue with so many done ranges, and with something unacked below them."""
    core.change(declare(name), bind(name, f"of {name}"))
    core.change(publish(f"of {name}", *[b""] * (ranges + 2)), publish(f"of {name}", *[b""] * (ranges + 2)))
    with_done(core, name, [f"of {name}"], every_second(ranges))


def consumed(core: CoreDriver, *ranges: list[int], connections: str = "") -> list[Session]:
    """A session for each list, which consumes queues with so many done ranges; of a connection for each letter."""
    sessions = []
    for number, counts in enumerate(ranges):
        session = core.session(connection=connections[number : number + 1])
        for handle, count in enumerate(counts, 1):
            queue(core, f"{number}-{handle}", count)
            core.attach(session, f"{number}-{handle}", handle, 1)
        sessions.append(session)
    core.pump()
    return sessions


def limit_to(core: CoreDriver, share: float) -> None:
    """Attached queues may take so much of what they take now."""
    attached = core.dispatcher.shares.attached
    attached.limit_bytes = int(share * attached.used_bytes)


def relieve(core: CoreDriver) -> None:
    core.dispatcher.relieve()
    core.pump()


def ended(*sessions: Session) -> list[bool]:
    assert all(isinstance(one.ended_by, ResourceExhausted) for one in sessions if one.ended_by is not None)
    return [one.ended_by is not None for one in sessions]
