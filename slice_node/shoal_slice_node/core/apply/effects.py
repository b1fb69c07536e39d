"""Tells what a record changes outside of the tables. The core fills it; dispatch and adapters read it."""

from __future__ import annotations

from typing import NamedTuple

from shoal_contract.errors import ShoalError
from shoal_slice_node.core.apply.counters import Counters


class Grown(NamedTuple):
    """Says that a chunk was appended to a key that is asked for."""

    key_id: bytes
    key: bytes
    first: int
    messages: int
    body_bytes: int
    time_ms: int
    chunk: bytes
    expires_ms: int = 0


class Bound(NamedTuple):
    """Says that a consumed queue got a binding: it sees offsets from `start`. `head`: the key's head at that moment."""

    queue_id: bytes
    key_id: bytes
    key: bytes
    start: int
    head: int


class Unbound(NamedTuple):
    """Says that a consumed queue lost a binding. Its backlog below `end` can still be consumed, unless `end` is 0."""

    queue_id: bytes
    key_id: bytes
    end: int


class Purged(NamedTuple):
    """Says that a consumed queue's backlog of a key was dropped below `to`."""

    queue_id: bytes
    key_id: bytes
    to: int


class Joined(NamedTuple):
    """Says that a queue was bound to a watched key."""

    key: bytes
    queue_id: bytes
    queue: bytes


class Left(NamedTuple):
    """Says that a queue is no longer bound to a watched key."""

    key: bytes
    queue_id: bytes


class Dropped(NamedTuple):
    """Says that a queue was dropped that is a member of watched keys. Its bindings may end later."""

    queue_id: bytes


class AckedByChange(NamedTuple):
    """Says that a change acked messages first <= offset < to of a key, for a consumed queue."""

    queue_id: bytes
    key_id: bytes
    first: int
    to: int


class Retried(NamedTuple):
    """Says what a RETRY record did with messages of a consumed queue that came back: `done`: they are done for this
    queue; else how often they were delivered is in the tables."""

    queue_id: bytes
    key_id: bytes
    first: int
    to: int
    done: bool


class Effects:
    """Collects the effects of one record.

    `counters`, `kept_messages`, `kept_bytes`: what it adds to the slice's totals; the engine adds them when the record
    is applied, so that a change that was only tried can be dropped. `forgotten_messages`: those that left logs, which
    `kept_messages` has less. `published`: for each publish of the change, in
    order, those that were refused too, the key id and the number of queues it was routed to; None where nothing was
    kept. `Answer.consumed` has a number for each. `set_aside`: an operator set the record
    aside, so that what could not be applied of it is left out.
    """

    __slots__ = (
        "acks_skipped",
        "advanced",
        "bound",
        "counters",
        "created",
        "dropped",
        "due",
        "events",
        "farewells",
        "forgotten_messages",
        "full",
        "kept_bytes",
        "kept_messages",
        "letters",
        "members",
        "outcome",
        "ownership",
        "published",
        "reclaim",
        "refused",
        "set_aside",
        "transients",
    )

    def __init__(self) -> None:
        self.counters = Counters()
        self.kept_messages = 0
        self.kept_bytes = 0
        self.forgotten_messages = 0
        self.outcome: bytes | None = None
        self.refused: ShoalError | None = None
        self.set_aside = False
        self.published: list[tuple[bytes, int] | None] = []
        # In the order in which they happened: consumers must see them so.
        self.events: list[Grown | Bound | Unbound | Purged | AckedByChange | Retried] = []
        # The same, for those that watch members: in the order in which they happened.
        self.members: list[Joined | Left | Dropped] = []
        self.ownership = False
        """The slice's partitions are others now."""
        self.bound: set[bytes] = set()
        """Keys of the Bound events: from there on their messages are asked for."""
        self.created: list[tuple[bytes, bytes]] = []
        self.dropped: list[bytes] = []
        self.due: list[bytes] = []
        """Rows that came into table `due`, or stay there, by their keys."""
        self.farewells: list[tuple[bytes, int]] = []
        """Queues that got a farewell, with its seconds: its time begins, unless a session consumes the queue."""
        self.letters = False
        """A farewell became a letter to another slice."""
        # Keys with a log where a binding advanced or ended: their low may rise.
        self.advanced: list[bytes] = []
        self.full: list[bytes] = []
        """Keys that had no room for a publish: what is consumed of them is to be trimmed soon."""
        self.transients: list[tuple[bytes, int]] = []
        """Transient queues that were declared or bound, with the seconds that they stay without a session."""
        self.acks_skipped = False
        """The acks of an ACKS record were not applied: they must be taken again."""
        # What background work must look at: rows of `reclaim`, and hints of keys, as a RECLAIM record names them.
        self.reclaim: list[bytes] = []

    @property
    def added_messages(self) -> int:
        """Returns how many messages came to logs, whatever left them meanwhile."""
        return self.kept_messages + self.forgotten_messages

    def clear_totals(self) -> None:
        """Begins the totals anew: what they were is added to the slice's."""
        self.counters = Counters()
        self.kept_messages = self.kept_bytes = self.forgotten_messages = 0
