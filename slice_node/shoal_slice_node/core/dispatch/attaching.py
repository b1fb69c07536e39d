"""Attaches queues to sessions and detaches them: what a session consumes, and what comes back when it stops.

Each call does a constant part at once. Work that grows with bindings (making streams, taking messages back) is done in
turns.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Generator, Iterator
from typing import NamedTuple

from shoal_contract.errors import ShoalError, exhausted
from shoal_slice_node.core.dispatch.attach_room import AttachRoom, overload
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.detached_handles import Forgetting
from shoal_slice_node.core.dispatch.ended_handles import EndedHandle
from shoal_slice_node.core.dispatch.exclusive import Exclusive
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.loading import load_streams
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.relief import Relief
from shoal_slice_node.core.dispatch.returning import Returning
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import (
    ATTACHED_AT_ONCE_MAX,
    ATTACHMENT_BYTES,
    ENDED_LOST_MAX,
    INLINE_STREAMS_MAX,
    STREAMS_PER_HANDLE,
)
from shoal_slice_node.core.rows.queue_row import life_of


class Begun(NamedTuple):
    """Says how an attach went. `life`: the number of the queue's part here, which tells one life of the queue from
    another; 0: it has no part here yet, and is attached as soon as it has one. `refused`: another session keeps the
    queue, which is exclusive, and this one is told so."""

    life: int
    refused: bool = False


class Attaching:
    """Attaches and detaches. `loading`: feeds with streams to be made, in turn. `closing`: sessions that ended;
    `owing`: those of which all queues are detached, while something that they have out comes back. `dissolving`: feeds
    of dropped queues. `handles_over`: what sessions may forget of handles. `arriving`: names of queues that now have a
    part here and that sessions wait for. `taken_over`: how often a session took an exclusive queue from another one."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        registry.transients.tell(self.begin_record, self.created)
        self.loading: deque[tuple[Feed, Generator[int, None, None]]] = deque()
        self.returning = Returning(registry)
        self.relief = Relief(registry, self.end, self._give_up_pull)
        self.closing: deque[Session] = deque()
        self.handles_over = Forgetting()
        self.owing: deque[Session] = deque()
        self.dissolving: deque[tuple[Feed, Iterator[Attachment]]] = deque()
        self.arriving: OrderedDict[bytes, None] = OrderedDict()
        self.taken_over = 0
        self._left = 0
        """How many sessions the record under way may still attach at once."""
        self._streams_left = 0
        """How many streams of dropped queues it may still forget at once."""

    @property
    def knows_exclusives(self) -> bool:
        """Returns whether any exclusive queue was consumed here lately: an attach may take it from another session."""
        return bool(self._registry.exclusives)

    def attach(
        self,
        session: Session,
        name: bytes,
        handle: int,
        window_messages: int,
        window_bytes: int,
        resets_before: int = 0,
    ) -> Begun:
        """Begins to consume a queue. A handle in use is replaced. A session that has ended attaches nothing.
        `resets_before`: see Attachment.

        Raises Conflict if the session has the queue under another handle, ResourceExhausted; nothing has changed then.
        """
        if session.closed:
            return Begun(0)
        self.room(session).check(name, handle)
        self.detach(session, handle)
        session.ended_handles.forget(handle)
        queue_id = self._registry.part_here(name)
        if queue_id is None:
            self._registry.await_part(session, name, handle, window_messages, window_bytes)
            session.await_part(name, handle)
        else:
            feed = self.feed(queue_id)
            if feed.exclusive is not None:
                feed.exclusive.knows(session.owner, session.number)
            if feed.exclusive is not None and self._refused(session, feed, feed.exclusive, handle):
                return Begun(life_of(queue_id), refused=True)
            self._add(session, feed, handle, window_messages, window_bytes, resets_before)
            if feed.exclusive is not None:
                self._take_over(session, feed, feed.exclusive)
        self._registry.shares.attached.hold(ATTACHMENT_BYTES)
        return Begun(0 if queue_id is None else life_of(queue_id))

    def _refused(self, session: Session, feed: Feed, exclusive: Exclusive, handle: int) -> bool:
        """Returns whether another session keeps an exclusive queue; this one is told so."""
        for attachment in feed.attachments.values():
            holder = attachment.session
            if not _gives_way(holder, session) and not exclusive.newer(session.owner, holder.owner):
                session.ended_handles.note(handle, EndedHandle(feed.name, exclusive, was_taken=False))
                self._registry.dirty[session.number] = session
                return True
        return False

    def _take_over(self, session: Session, feed: Feed, exclusive: Exclusive) -> None:
        """Ends the attachments of others. Must be called once the session has its own: else the feed might be forgotten
        in between."""
        exclusive.took(session.owner)
        for attachment in [other for other in feed.attachments.values() if other.session is not session]:
            holder, handle = attachment.session, attachment.handle
            assert handle is not None
            gives_way = _gives_way(holder, session)
            if not gives_way:
                attachment.lose_to_another()
            self.end_attachment(holder, handle)
            if not gives_way:
                self.taken_over += 1
                self._lost(holder, handle, EndedHandle(feed.name, exclusive, was_taken=True))

    def _lost(self, holder: Session, handle: int, ended: EndedHandle) -> None:
        """Notes that a session lost a queue. It ends if it reads so little that too many such words wait for it."""
        if holder.ended_by is not None:
            return
        holder.ended_handles.note(handle, ended)
        self._registry.dirty[holder.number] = holder
        if len(holder.ended_handles) > ENDED_LOST_MAX:
            lost = len(holder.ended_handles)
            self.end(holder, exhausted("ended handles that the session has not read", ENDED_LOST_MAX, lost))

    def room(self, session: Session) -> AttachRoom:
        """Returns a check of the room for several queues, to be made before the first is attached."""
        return AttachRoom(self._registry, session)

    def _add(
        self, session: Session, feed: Feed, handle: int, window_messages: int, window_bytes: int, resets_before: int
    ) -> None:
        registry = self._registry
        freed_bytes = session.reuse_handle(handle)
        self.handles_over.note(session.detached)
        if freed_bytes:
            registry.let_go(session, freed_bytes)
        attachment = Attachment(session, feed, handle, window_messages, window_bytes, resets_before)
        session.add(attachment)
        registry.add_attachment(attachment)
        registry.taken(feed)
        registry.wake(feed)

    def feed(self, queue_id: bytes) -> Feed:
        """Returns the feed of a queue that exists. A new feed gets its streams later, if they are many."""
        registry = self._registry
        feed = registry.feeds.get(queue_id)
        if feed is None:
            queue = registry.state.load_queue_by_id(queue_id)
            assert queue is not None, f"queue {queue_id.hex()} has a name but no row"
            streams = queue.bindings + queue.details
            feed = registry.add_feed(queue_id, queue.name, queue.options, streams)
            at_once = streams <= INLINE_STREAMS_MAX and registry.at_once.take(streams)
            steps = load_streams(registry.state, feed, registry.register, queue if at_once else None)
            if at_once:
                self.loading.appendleft((feed, steps))
                self.load_turn(INLINE_STREAMS_MAX)
            else:
                self.loading.append((feed, steps))
        return feed

    def load_turn(self, bindings_max: int) -> None:
        """Makes the streams of about `bindings_max` bindings, for the feed that waited longest."""
        feed, steps = self.loading.popleft()
        if feed.gone:
            steps.close()
            return
        for cost in steps:
            bindings_max -= cost
            if bindings_max <= 0:
                break
        if feed.loading and (error := overload(self._registry, feed)) is not None:
            self._give_up(feed, error)
        if feed.loading:
            self.loading.append((feed, steps))
        else:
            self._registry.loaded(feed)
        self._registry.wake(feed)

    def _give_up(self, feed: Feed, error: ShoalError) -> None:
        """Ends all that consume a feed which has no room in memory. A pull under way ends by itself."""
        for attachment in list(feed.attachments.values()):
            assert attachment.handle is not None
            self.end_attachment(attachment.session, attachment.handle)
            self.end(attachment.session, error)
        for attachment in list(feed.pullers.values()):
            self._give_up_pull(attachment)

    def _give_up_pull(self, attachment: Attachment) -> None:
        """Takes back what a session pulled from a queue, unless a pull is under way."""
        if not attachment.pulling:
            self._registry.forget_puller(attachment)
            self.returning.take_back(attachment)

    def detach(self, session: Session, handle: int) -> None:
        """Ends an attachment, as the session wants. What it had out is given to others, or given again later. An
        unknown handle changes nothing."""
        attachment = session.attachments.get(handle)
        if attachment is not None and attachment.feed.exclusive is not None and not session.closed:
            attachment.feed.exclusive.forget(session.owner)
        session.ended_handles.knows(handle)
        self.end_attachment(session, handle)

    def end_attachment(self, session: Session, handle: int) -> None:
        """Does what `detach` does, though the session may not know of it."""
        attachment = session.remove(handle)
        if attachment is not None:
            feed = attachment.feed
            self._registry.shares.attached.let_go(ATTACHMENT_BYTES)
            if not feed.gone:
                self._registry.remove_attachment(attachment)
                self._registry.lost_consumer(feed)
                self.returning.take_back(attachment)
            return
        name = session.stop_awaiting(handle)
        if name is not None:
            self._registry.shares.attached.let_go(ATTACHMENT_BYTES)
            self._registry.stop_awaiting(session, name, handle)

    def close(self, session: Session) -> None:
        """Ends a session's consumption: it is given nothing more. Requests of it that are still on their way here have
        no effect. What waited for it counts until it is freed."""
        registry = self._registry
        session.close()
        registry.dirty.pop(session.number, None)
        registry.roomy.pop(session, None)
        registry.leaving.session_ends(session)
        # A session with much that was not sent does not get through in this step. Once some wait, all that come wait:
        # else each turn of the pump would let more in, and what calls this for a thousand would get no further.
        handles = len(session.by_queue) + len(session.pullers)
        cost = STREAMS_PER_HANDLE * (1 + handles) + min(session.not_sent.not_listed, INLINE_STREAMS_MAX)
        is_small = handles <= INLINE_STREAMS_MAX // STREAMS_PER_HANDLE
        at_once = is_small and not self.closing and registry.at_once.take(cost)
        if not (at_once and self._close_some(session, INLINE_STREAMS_MAX // STREAMS_PER_HANDLE)):
            self.closing.append(session)

    def close_turn(self, handles_max: int) -> None:
        """Detaches some of the queues of sessions that ended. Sessions take turns: what waited for one is not kept
        until a large one before it is done. Many small ones go together: one walk then takes back what they had."""
        while handles_max > 0 and self.closing:
            session = self.closing.popleft()
            cost = self._close_some(session, handles_max)
            if cost:
                handles_max -= cost
            else:
                self.closing.append(session)
                return

    def _close_some(self, session: Session, handles_max: int) -> int:
        """Detaches some of its queues, once what was not sent is listed. Returns what it cost, in handles, or 0 if
        there is more to do."""
        before = session.not_sent.not_listed
        more = session.not_sent.list_left_behind(STREAMS_PER_HANDLE * handles_max)
        self._registry.shares.let_go(session, session.not_sent.take_freed(session.under_way_bytes))
        if more:
            return 0
        for handles in range(handles_max):
            if session.by_queue:
                self.detach(session, next(reversed(session.by_queue.values())))
            elif session.pullers:
                attachment = next(reversed(session.pullers.values()))
                self._registry.forget_puller(attachment)
                self.returning.take_back(attachment)
            else:
                self._registry.leaving.session_ended(session)
                self.owing.append(session)
                self.owing_turn(1)
                self.relief.begin()  # It may not be enough: others may have had the same queues.
                return 1 + handles + before // STREAMS_PER_HANDLE
        return 0

    def owing_turn(self, sessions_max: int) -> None:
        """Lets go of what some of these sessions left behind, the last first: of those that have nothing out any more,
        and of all if nothing is being taken back, as only that asks for it."""
        for _ in range(min(sessions_max, len(self.owing))):
            session = self.owing.pop()
            if session.owed and self.returning.walks:
                self.owing.appendleft(session)
                continue
            self._registry.shares.let_go(session, session.under_way_bytes)
            session.not_sent.forget_left_behind()
            session.detached.forget()
            self.handles_over.note(session.detached)

    def begin_record(self) -> None:
        """Begins a record: it may attach ATTACHED_AT_ONCE_MAX sessions at once, and forget a few streams."""
        self._left = ATTACHED_AT_ONCE_MAX
        self._streams_left = INLINE_STREAMS_MAX

    def dissolve(self, feed: Feed) -> None:
        """Ends the consumption of a dropped queue. Attached sessions wait for a new queue of this name, and are told
        that it is another one."""
        registry = self._registry
        self._streams_left -= registry.end_feed(feed, self._streams_left)
        for attachment in feed.pullers.values():
            registry.shares.attached.let_go(ATTACHMENT_BYTES * attachment.session.remove_puller(attachment))
        attachments = list(feed.attachments.values())
        feed.forget_consumers()
        self.dissolving.append((feed, iter(attachments)))
        if len(attachments) <= self._left:
            self._left -= len(attachments)
            self.dissolving.rotate(1)
            self.dissolve_turn(len(attachments) + 1)

    def dissolve_turn(self, attachments_max: int) -> None:
        """Attaches some of a dropped queue's consumers to the next queue of its name."""
        feed, attachments = self.dissolving[0]
        for _ in range(attachments_max):
            attachment = next(attachments, None)
            if attachment is None:
                self.dissolving.popleft()
                return
            session, handle = attachment.session, attachment.handle
            if handle is None or session.attachments.get(handle) is not attachment:
                continue  # It was detached meanwhile.
            session.resets.note(handle)
            self._registry.dirty[session.number] = session
            self._attach_or_end(session, feed.name, handle, attachment.window_messages, attachment.window_bytes)

    def created(self, name: bytes) -> None:
        """Attaches the sessions that wait for a queue of this name: it now has a part here. Those beyond what a record
        may attach at once wait for a turn."""
        if name in self._registry.awaited:
            self.arriving[name] = None
            self._left -= self._arrive(name, self._left)

    def arrive_turn(self, attachments_max: int) -> None:
        """Attaches some of the sessions that wait for queues that now have a part here."""
        while attachments_max > 0 and self.arriving:
            attachments_max -= self._arrive(next(iter(self.arriving)), attachments_max)

    def _arrive(self, name: bytes, attachments_max: int) -> int:
        """Attaches some of the sessions that wait for a queue that now has a part here. Returns what it cost, in
        attachments: a new feed's streams cost, too."""
        registry, cost = self._registry, 0
        while cost < attachments_max:
            waiting, queue_id = registry.awaited.get(name), registry.part_here(name)
            if not waiting or queue_id is None:
                del self.arriving[name]
                return max(1, cost)
            before = queue_id in registry.feeds
            (_, handle), (session, messages, body_bytes) = next(iter(waiting.items()))
            self._attach_or_end(session, name, handle, messages, body_bytes)
            cost += 1
            if not before and queue_id in registry.feeds:
                cost += len(registry.feeds[queue_id].streams) // STREAMS_PER_HANDLE
        return cost

    def _attach_or_end(
        self, session: Session, name: bytes, handle: int, window_messages: int, window_bytes: int
    ) -> None:
        """Attaches a queue that the session had or waits for; ends the session if there is no room any more, as no
        answer can tell it so."""
        try:
            self.attach(session, name, handle, window_messages, window_bytes, session.resets.noted)
        except ShoalError as error:
            self.detach(session, handle)  # The session no longer waits for the queue.
            self.end(session, error)
        else:
            session.tell_new_part(handle)
            if session.new_parts:
                self._registry.dirty[session.number] = session

    def end(self, session: Session, error: ShoalError) -> None:
        """Ends a session, because it lost something that it is not told of in another way."""
        session.end_with(error.with_traceback(None))  # The frames have the session, which has the error: a circle.
        self._registry.dirty[session.number] = session


def _gives_way(holder: Session, session: Session) -> bool:
    """Returns whether the holder of a queue goes without a word: it has ended, or it is an earlier session of the same
    client, whose connection was lost."""
    return holder.closed or bool(holder.owner and holder.owner == session.owner)
