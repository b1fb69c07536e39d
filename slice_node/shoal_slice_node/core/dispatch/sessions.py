"""Keeps one client connection as dispatch sees it: its handles, what waits to be sent, how much may wait."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.expiry import has_expired
from shoal_slice_node.core.dispatch.asked_attaches import AskedAttaches
from shoal_slice_node.core.dispatch.detached_handles import DetachedHandles
from shoal_slice_node.core.dispatch.ended_handles import EndedHandles
from shoal_slice_node.core.dispatch.leases import SessionLeases
from shoal_slice_node.core.dispatch.nacks_taken import NacksTaken
from shoal_slice_node.core.dispatch.new_part import NewPart, part_of
from shoal_slice_node.core.dispatch.not_sent import Found, NotSent
from shoal_slice_node.core.dispatch.parcels import Parcel, Slot, Taken
from shoal_slice_node.core.dispatch.resets import Resets
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.dispatch.turned_away import TurnedAway
from shoal_slice_node.core.limits import DETACHED_LOOKS_PER_STEP, DETACHED_NOTED_MAX, OWED_OVER, OWED_PER_SESSION_MAX

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment
    from shoal_slice_node.core.dispatch.feeds import Feed


class Session:
    """Keeps what one session consumes, and what waits for it.

    `under_way_bytes`: memory of what waits here or at the transport. When it reaches `room_bytes`, nothing more is
    added: the session lags. `held_large_bytes`: what large chunks take of it; all of it, if it is less than they took.
    `held_out_of_turn_bytes`: what was given out of turn (out_of_turn.py), counted in the same way.
    `room_bytes` is `window_bytes`, or less while the process is short of memory (shares.py), and -1 once it is closed.
    Where sessions wait for room it is given something in its turn (room_line.py). `owed`: the number of stretches of
    offsets that it has and has not acked (streams.Out), over all queues; at `owed_max` it lags. `owed_before`: what it
    owed when it came to `owed_max`, which may sink as others come; 0: it is below. `sent_to`: the number of the last
    parcel that the transport took; all with lower numbers have left, or are no more. `leases`: of what was given under
    an ack timeout, or pulled.

    Invariants: each name in `by_queue` is that of an attachment, or is in `awaited`, under the same handle; a closed
    session has nothing in `waiting` and `turned_away`.
    """

    __slots__ = (
        "_room_line",
        "_taken",
        "asked",
        "attachments",
        "awaited",
        "by_queue",
        "closed",
        "connection",
        "detached",
        "ended_by",
        "ended_handles",
        "held_large_bytes",
        "held_out_of_turn_bytes",
        "is_of_calls",
        "leases",
        "nacks_taken",
        "new_parts",
        "not_sent",
        "number",
        "owed",
        "owed_before",
        "owed_max",
        "owner",
        "paused",
        "pullers",
        "resets",
        "resumed",
        "room_bytes",
        "sent_to",
        "turned_away",
        "under_way_bytes",
        "waiting",
        "window_bytes",
    )

    def __init__(
        self,
        number: int,
        window_bytes: int,
        owner: bytes = b"",
        connection: str = "",
        shares: DispatchShares | None = None,
    ) -> None:
        """`connection`: the client's, which other sessions may share. `shares`: where it counts; None: its own."""
        shares = shares or DispatchShares()
        self.number, self.owner, self.connection = number, owner, connection
        """`owner`: the client's producer id, the same over reconnects; b"": it belongs to no client with an id."""
        self.window_bytes = self.room_bytes = window_bytes
        self.under_way_bytes = self.held_large_bytes = self.held_out_of_turn_bytes = 0
        self._room_line = shares.line
        self.owed = self.owed_before = 0
        self.owed_max, self.is_of_calls = OWED_PER_SESSION_MAX, False
        """All unary calls share it: a caller that has something out cannot be told from one that asks for more."""
        self._taken = 0
        """Messages that the transport took and that are not counted yet, once for each queue."""
        self.closed = False
        self.ended_by: ShoalError | None = None
        """Why the slice ends it; its stream must be told."""
        self.attachments: dict[int, Attachment] = {}
        self.by_queue: dict[bytes, int] = {}
        """The handle of each queue name, attached or awaited."""
        self.detached = DetachedHandles(shares.attached)
        self.asked = AskedAttaches()
        self.awaited: dict[int, bytes] = {}
        """Handles of queues that have no part here yet."""
        self.pullers: dict[bytes, Attachment] = {}
        self.turned_away = TurnedAway()
        """Feeds that found no room here: they are served when there is room again."""
        self.paused: dict[Attachment, None] = {}
        """Those that are given nothing until the session is seen to read."""
        self.resumed: dict[Attachment, None] = {}
        """Those that are to be given something again."""
        self.waiting: dict[Slot, Parcel] = {}
        self.nacks_taken = NacksTaken()
        self.sent_to, self.leases, self.not_sent = 0, SessionLeases(), NotSent()
        self.resets = Resets(shares.attached)
        """Handles of dropped queues: the client is told before it gets anything of their next life."""
        self.new_parts: dict[int, NewPart] = {}
        """Maps a handle to its queue's part here, where no answer to an attach told it."""
        self.ended_handles = EndedHandles(owner, number, shares.attached)
        """Handles that another session's attach ended, or that were refused because of one: the client is told."""

    @property
    def has_room_of_its_own(self) -> bool:
        return self.under_way_bytes < self.room_bytes and self.owed < self.owed_max

    @property
    def has_room(self) -> bool:
        """Returns whether more may be added now: a session with room of its own may have to wait for its turn."""
        return self.has_room_of_its_own and self._room_line.lets_in(self)

    def has_room_for(self, cost_bytes: int) -> bool:
        """Returns whether what takes so much memory may be added now: a little may come out of turn."""
        line = self._room_line
        return self.has_room_of_its_own and (line.lets_in(self) or line.lets_in_out_of_turn(self, cost_bytes))

    def has_room_for_live(self, cost_bytes: int) -> bool:
        """Returns whether a live chunk may be added: nothing of it is owed, and it cannot wait for a turn."""
        return self.under_way_bytes < self.room_bytes and self._room_line.has_room_for_live(self, cost_bytes)

    @property
    def to_send(self) -> bool:
        return bool(self.waiting) or self.tells

    @property
    def tells(self) -> bool:
        """Returns whether the client is still to be told something of its handles; messages come behind it."""
        return bool(self.resets or self.ended_handles or self.new_parts)

    def queue_of(self, handle: int) -> bytes | None:
        """Returns the name that the handle stands for, attached or awaited; None: the handle is not in use."""
        attachment = self.attachments.get(handle)
        return self.awaited.get(handle) if attachment is None else attachment.feed.name

    def add(self, attachment: Attachment) -> None:
        """Notes what was attached, under its handle, which is not in use."""
        handle = attachment.handle
        assert handle is not None
        self.attachments[handle], self.by_queue[attachment.feed.name] = attachment, handle

    def remove(self, handle: int) -> Attachment | None:
        """Forgets the attachment with this handle, and returns it. Nothing that waits here may name the handle when it
        is sent. None: nothing is attached under it."""
        attachment = self.attachments.pop(handle, None)
        if attachment is not None:
            feed = attachment.feed
            self.new_parts.pop(handle, None)
            self.paused.pop(attachment, None)
            self.resumed.pop(attachment, None)
            del self.by_queue[feed.name]
            self.turned_away.forget(feed.queue_id)
            if self.waiting:
                self.detached.note(handle, attachment, self._newest_parcel)
        return attachment

    def await_part(self, name: bytes, handle: int) -> None:
        """Notes that the session waits for a queue that has no part here yet."""
        self.awaited[handle] = name
        self.by_queue[name] = handle

    def stop_awaiting(self, handle: int) -> bytes | None:
        """Returns the name of the queue that was awaited under this handle, and is not any more; None: there is
        none."""
        name = self.awaited.pop(handle, None)
        if name is not None:
            del self.by_queue[name]
        return name

    def add_puller(self, attachment: Attachment) -> None:
        self.pullers[attachment.feed.queue_id] = attachment

    def remove_puller(self, attachment: Attachment) -> bool:
        """Forgets it. Returns False if it was forgotten before."""
        known = self.pullers.get(attachment.feed.queue_id) is attachment
        if known:
            del self.pullers[attachment.feed.queue_id]
        return known

    def tell_new_part(self, handle: int) -> None:
        """Notes that the client is to be told of the part that an attached queue has here now."""
        if (attachment := self.attachments.get(handle)) is not None:
            self.new_parts[handle] = part_of(attachment)

    def take_new_parts(self, count_max: int) -> dict[int, NewPart]:
        """Returns what the client is to be told of new parts, of up to `count_max` handles."""
        told = dict(islice(self.new_parts.items(), count_max))
        for handle in told:
            del self.new_parts[handle]
        return told

    def end_with(self, error: ShoalError) -> None:
        self.ended_by = error.with_traceback(None)  # Its frames have this session.

    def close(self) -> None:
        """Notes that the session has ended: it is given nothing more, and nothing waits for it. What waited counts
        until it is freed; `NotSent.list_left_behind` must be called before what it has out is given back."""
        self.not_sent.close(self.waiting)
        self.detached.close()
        self.waiting = {}
        self.leases.clear()
        self.turned_away.clear()
        self.paused.clear()
        self.resumed.clear()
        self.ended_handles.clear()
        self._room_line.leave(self)
        self.resets.clear()
        self.closed, self.room_bytes = True, -1

    # What it holds and owes.

    def hold(self, cost_bytes: int) -> None:
        """Notes that `cost_bytes` more are under way. Only DispatchShares calls this, which counts them too."""
        self.under_way_bytes += cost_bytes

    def let_go(self, cost_bytes: int) -> None:
        """Notes that `cost_bytes` less are under way. Only DispatchShares calls this."""
        self.under_way_bytes -= cost_bytes
        assert self.under_way_bytes >= 0

    def count_held(self, large_bytes: int, out_of_turn_bytes: int) -> None:
        """Notes what it holds of these. Only DispatchShares calls this, which counts them too."""
        self.held_large_bytes, self.held_out_of_turn_bytes = large_bytes, out_of_turn_bytes

    def limit_room(self, room_bytes: int) -> None:
        """Sets how much may be under way: at most the session's own window; nothing once it is closed."""
        if not self.closed:
            self.room_bytes = min(self.window_bytes, room_bytes)

    def owe(self, stretches: int) -> None:
        """Notes that the session owes so many stretches more, or less if it is negative."""
        self.owed += stretches
        assert self.owed >= 0

    def limit_owed(self, owed_max: int) -> None:
        """Sets how much the session may owe. While it owes more, it is given nothing."""
        self.owed_max = owed_max
        if self.owed < owed_max:
            self.owed_before = 0
        elif not self.owed_before:
            self.owed_before = min(self.owed, OWED_PER_SESSION_MAX)

    @property
    def owes_too_much(self) -> bool:
        """Returns whether it owes much more than it was given: its acks leave gaps."""
        return self.owed > OWED_OVER * max(self.owed_max, self.owed_before)

    def share_among_calls(self, owed_max: int) -> None:
        """Notes that all unary calls share the session, and how much it may owe."""
        self.is_of_calls, self.owed_max = True, owed_max

    def pause(self, attachment: Attachment) -> None:
        """Notes that the attachment is given nothing until the session reads."""
        attachment.pause(True)
        self.resumed.pop(attachment, None)
        self.paused[attachment] = None

    def reads(self) -> None:
        """Notes that the session reads."""
        self.resumed, self.paused = self.resumed | self.paused, {}

    def resume_next(self) -> Attachment:
        """Returns an attachment that is not paused any more."""
        attachment, _ = self.resumed.popitem()
        attachment.pause(False)
        return attachment

    def turn_away(self, feed: Feed, cost_bytes: int) -> None:
        """Notes that the feed found no room here for what takes so much. If the session itself has, it waits."""
        self.turned_away.add(feed, cost_bytes)
        self.wait_for_room()

    def wait_for_room(self) -> None:
        """Lets the session wait for its turn, if feeds found no room and it has room of its own."""
        if self.has_room_of_its_own:
            self._room_line.wait(self)

    @property
    def _newest_parcel(self) -> int:
        return next(reversed(self.waiting.values())).number if self.waiting else 0

    # What waits for it.

    def note_nacks_taken(self, number: int) -> None:
        """Notes that nacks up to this number were taken: parcels from now on tell it."""
        self.nacks_taken.add(number, self._newest_parcel)

    def add_parcel(self, slot: Slot, parcel: Parcel) -> None:
        """Lets a new parcel wait, behind the others."""
        self.waiting[slot] = parcel

    def reuse_handle(self, handle: int) -> int:
        """Prepares the handle to mean another queue from now on. Returns the bytes freed of what waits."""
        if handle not in self.detached:
            return 0
        self.nacks_taken.close_parcels(self._newest_parcel)
        many = self.detached.noted > DETACHED_NOTED_MAX
        return self.detached.sweep(self.waiting, self._leaves) if many else 0

    def take(self, bytes_max: int, expiry_clock_ms: int = 0) -> Taken:
        """Returns what to send now, oldest first, at most about `bytes_max` on the wire; maybe nothing, if much is for
        detached handles. A gap begins a new response, as a client reads its gaps first. What has expired is a gap."""
        told: list[tuple[bytes, Parcel]] = []
        deliveries: list[wire.Delivery] = []
        gaps: list[wire.Gap] = []
        total, any_detached = 0, bool(self.detached)
        cost_bytes = freed_bytes = looked_at = 0
        leaving: list[Slot] = []  # To take the first out of a dict again and again would be quadratic.
        for slot, parcel in self.waiting.items():
            if any_detached:
                if looked_at >= DETACHED_LOOKS_PER_STEP:
                    break
                looked_at += 1 + len(parcel.handles)
                freed_bytes += self.detached.take_out(slot[0], parcel)
                if not parcel.handles:
                    leaving.append(slot)
                    continue
            total += parcel.wire_bytes
            has_gone = has_expired(parcel.expires_ms, expiry_clock_ms)
            if (deliveries or gaps) and (total > bytes_max or ((has_gone or parcel.is_gap) and deliveries)):
                break
            leaving.append(slot)
            self.sent_to = parcel.number
            cost_bytes += parcel.cost_bytes
            if has_gone:
                parcel = parcel.expired()
            if parcel.is_gap:
                told.append((slot[0], parcel))
                gaps.append(parcel.to_gap())
                continue
            self._taken += (parcel.to - parcel.low) * len(parcel.handles)
            deliveries.append(parcel.to_wire(self.nacks_taken.before(parcel.number)))
        for slot in leaving:
            self._leaves(slot)
        self.detached.forget_sent(self.sent_to, not self.waiting)
        return Taken(deliveries, gaps, cost_bytes, told, freed_bytes)

    def _leaves(self, slot: Slot) -> None:
        del self.waiting[slot]
        self.not_sent.leaves(slot, not self.waiting)

    # What was not sent.

    def unsent(self, key_id: bytes, handle: int, first: int, to: int) -> tuple[list[Found], int]:
        """Returns the parcels for this handle that the transport did not take, of a key's offsets first <= o < to, by
        their first offsets; and how many were looked at."""
        if self.closed:
            self.not_sent.list_left_behind(self.not_sent.waited)
        else:
            self.not_sent.list_new(self.waiting)
        found, looked_at = self.not_sent.between(key_id, first, to)
        return [one for one in found if one[1].brings_to(handle)], looked_at

    def count_not_sent(self) -> int:
        """Returns how many parcels wait, or waited when the session closed."""
        return self.not_sent.waited or len(self.waiting)

    def list_not_sent(self, parcels_max: int) -> bool:
        """Lists some of what waits, or waited when the session closed. Returns False if `unsent` lists little then."""
        if self.closed:
            return self.not_sent.list_left_behind(parcels_max)
        return self.not_sent.list_some(self.waiting, parcels_max)

    def withdraw(self, slot: Slot, parcel: Parcel, handle: int) -> int:
        """Takes a handle out of a parcel that waits. Returns the bytes freed."""
        before = parcel.cost_bytes
        parcel.drop_handle(handle)
        if not parcel.handles:
            self._leaves(slot)
        return before - (parcel.cost_bytes if parcel.handles else 0)

    def count_taken(self) -> int:
        """Returns the number of messages that the transport took since the last call, once for each queue."""
        taken, self._taken = self._taken, 0
        return taken
