"""Keeps how one session consumes one queue: its window, and what it has out and unacked."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Feed
    from shoal_slice_node.core.dispatch.leases import Lease
    from shoal_slice_node.core.dispatch.sessions import Session


Given = dict[bytes, list[tuple[int, int]]]
"""Maps a key id to ranges of offsets: (first, to)."""


class Attachment:
    """Keeps how one session consumes one queue, and counts what it has out and unacked. `handle` None: it pulls.
    `lined`: it stands in its feed's line; only the feed changes this. Invariant: `messages` and `body_bytes` are the
    sums of the `Out` entries that name it, those that wait to be released (releases.py) too."""

    __slots__ = (
        "_left",
        "_pulls",
        "_taken",
        "body_bytes",
        "feed",
        "handle",
        "last_parcel",
        "lease",
        "lined",
        "messages",
        "paused",
        "resets_before",
        "session",
        "taken_over",
        "unsent",
        "unsent_changes",
        "window_bytes",
        "window_messages",
        "withdrawing",
    )

    def __init__(
        self,
        session: Session,
        feed: Feed,
        handle: int | None,
        window_messages: int,
        window_bytes: int,
        resets_before: int = 0,
    ) -> None:
        self.session = session
        self.feed = feed
        self.handle = handle
        self.window_messages = window_messages
        self.window_bytes = window_bytes
        self.resets_before = resets_before
        """The client has seen so many resets (Resets.noted) before it gets anything of this: an ack or nack by handle
        that says that it had seen fewer is for an earlier life of the queue. 0: the client attached it itself, so its
        frames say which it means by their order."""
        self.messages = 0
        self.body_bytes = 0
        self.lined = False
        self.lease: Lease | None = None
        """What it is given now joins this lease, in a queue with an ack timeout."""
        self.unsent: Given | None = None
        """Maps a key id to what was on its way here and was taken back, as this was detached or did not read, and is
        out."""
        self.unsent_changes = 0
        """How often what it was not sent has changed by other things than parcels that come and leave."""
        self.paused = False
        """It is given nothing for now. Invariant: True exactly while it is in its session's `paused` or `resumed`."""
        self.withdrawing = False
        """What waits for it is being taken back, in steps. Until that is done it stays paused, though its session
        reads: what it was given now would come before what was taken back."""
        self._left = False
        """It was detached, and gets nothing more."""
        self.last_parcel: int | None = None
        """Parcels with its handle and a higher number are another queue's: the last number when it was detached; None:
        it was not detached."""
        self.taken_over = False
        """Another session took its exclusive queue: what it had comes back, and no delivery of it counts."""
        self._pulls = 0
        """The number of its pulls under way."""
        self._taken: list[Given] = []
        """What its pulls took whose answers have not left, or never will; without what came back since."""

    @property
    def window_open(self) -> bool:
        """Returns whether the window has room for a message, and may be used."""
        return self.has_window_behind(0, 0) and not self.paused

    def has_window_behind(self, messages: int, body_bytes: int) -> bool:
        """Returns whether the window has room for one message behind so much more: the last one may exceed it in
        bytes."""
        return self.messages + messages < self.window_messages and self.body_bytes + body_bytes < self.window_bytes

    @property
    def attached(self) -> bool:
        """Returns whether it is neither detached, nor are its session and its queue gone."""
        return not (self._left or self.session.closed or self.feed.gone)

    def pause(self, paused: bool) -> None:
        """Notes whether it is to be given nothing. Only its session calls this."""
        self.paused = paused

    def lose_to_another(self) -> None:
        """Notes that another session took its exclusive queue."""
        self.taken_over = True

    def begin_withdrawal(self) -> None:
        """Notes that what waits for it is being taken back."""
        self.withdrawing = True

    def end_withdrawal(self) -> None:
        """Notes that what waited for it was taken back."""
        self.withdrawing = False

    def room_for(self, messages: int, body_bytes: int) -> int:
        """Returns for how many of a chunk's messages the window has room; it is open. Of bytes, each message counts
        with an equal share."""
        room, left_bytes = self.window_messages - self.messages, self.window_bytes - self.body_bytes
        return room if body_bytes <= left_bytes else min(room, -(-left_bytes * messages // body_bytes))

    @property
    def pulling(self) -> bool:
        """Returns whether a pull is under way."""
        return self._pulls > 0

    def hold(self, messages: int, body_bytes: int) -> None:
        """Notes that more is out."""
        self.messages += messages
        self.body_bytes += body_bytes

    def release(self, messages: int, body_bytes: int) -> None:
        """Notes that less is out. If the window opens, the attachment is lined up again."""
        self.messages -= messages
        self.body_bytes -= body_bytes
        assert self.messages >= 0 and self.body_bytes >= 0
        if not self.lined and self.has_window_behind(0, 0):
            self.feed.line_up(self)

    def stop(self) -> None:
        """Notes that it gets nothing more. What it has out stays out."""
        self.window_messages = 0

    def begin_lease(self, lease: Lease) -> None:
        """Notes that what it is given from now on joins this lease."""
        self.lease = lease

    def note_unsent(self, key_id: bytes, first: int, to: int) -> None:
        """Notes what does not reach it. Once nothing of it is out, nothing need be known."""
        if self.messages:
            self.unsent_changes += 1
            if self.unsent is None:
                self.unsent = {}
            pairs = self.unsent.setdefault(key_id, [])
            if pairs and pairs[-1][1] == first:
                pairs[-1] = pairs[-1][0], to
            else:
                pairs.append((first, to))

    def has_unsent(self, key_id: bytes) -> bool:
        """Returns whether `take_unsent` has something of a key."""
        return self.unsent is not None and key_id in self.unsent

    def take_unsent(self, key_id: bytes) -> list[tuple[int, int]]:
        """Returns what it was not sent of a key, and forgets it."""
        self.unsent_changes += 1
        return [] if self.unsent is None else self.unsent.pop(key_id, [])

    def end_lease(self) -> None:
        """Notes that nothing more joins its lease."""
        self.lease = None

    def begin_pull(self) -> Given:
        """Returns where the pull notes what it takes."""
        given: Given = defaultdict(list)
        self._pulls += 1
        self.unsent_changes += 1
        self._taken.append(given)
        return given

    def end_pull(self) -> None:
        self._pulls -= 1
        self.unsent_changes += 1
        assert self._pulls >= 0

    def take_given(self, given: Given, key_id: bytes) -> list[tuple[int, int]]:
        """Forgets what a pull took of a key, whose answer has not left: it comes back. Returns it."""
        self.unsent_changes += 1
        return given.pop(key_id, [])

    def answer_left(self, given: Given) -> None:
        """Notes that the answer to a pull is on its way: what it took counts as delivered."""
        self.unsent_changes += 1
        self._taken = [one for one in self._taken if one is not given]

    def not_sent(self, key_id: bytes) -> list[tuple[int, int]]:
        """Returns what it was given of a key and does not reach it, or has not yet; maybe with what is not out any
        more."""
        noted = [] if self.unsent is None else self.unsent.get(key_id, [])
        return noted + [one for given in self._taken for one in given.get(key_id, ())]

    def note_last_parcel(self, number: int) -> None:
        """Notes, as it is detached, the number of the last parcel that was made."""
        self.last_parcel = number

    def join_line(self) -> bool:
        """Notes that the feed puts it into its line. Returns False if it stands there, was detached, or pulls."""
        if self.lined or self._left or self.handle is None:
            return False
        self.lined = True
        return True

    def taken_from_line(self) -> None:
        """Notes that the feed took it out of its line."""
        self.lined = False

    def end(self) -> bool:
        """Notes that it was detached: it is never lined up again. Returns whether it stood in line until now."""
        self._left = True
        lined, self.lined = self.lined, False
        return lined
