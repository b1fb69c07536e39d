"""Keeps which queues of an inbox are attached at one slice: what was asked, what was answered, each queue's life."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final

from shoal.core.frames import DetachFrame, Frame
from shoal.core.refusals import deadline_exceeded, unreadable
from shoal.limits import ATTACH_AGAIN_S, ATTACH_QUEUES_MAX
from shoal_contract.errors import OutcomeUnknown, ResourceExhausted, ShoalError
from shoal_contract.wire import slice_pb2 as wire

_log = logging.getLogger("shoal")

_UNKNOWN: Final = -1
"""The life of a part that delivered something, where the slice has not told which one it was."""


class AttachFrame(Frame):
    """Attaches the queues that are still to be attached when it is sent. If a detach follows this frame, queues that
    were asked for after that detach are left out: one of them may be the queue that is detached, and a slice refuses a
    queue that the session has. `detaches`: the number of detaches before this frame. It ends with its stream: the next
    one begins with new frames."""

    __slots__ = ("_detaches", "_handles", "_owner", "cost_bytes")

    def __init__(self, owner: Attachments, detaches: int) -> None:
        super().__init__()
        self.cost_bytes = 0
        self._owner = owner
        self._detaches = detaches
        self._handles: list[int] = []

    def fill(self, request: wire.SessionRequest) -> bool:
        """Writes the handles that are still to be attached. Returns False if there are none."""
        self._handles = self._owner.fill(request.attach, self._detaches)
        return bool(self._handles)

    def answered(self, answer: wire.Answer) -> None:
        """Records what was attached."""
        self._owner.answered(self._handles, answer.attached)

    def failed(self, error: ShoalError) -> None:
        """Records that nothing was attached."""
        self._owner.refused(self._handles, error)

    def stream_ended(self) -> bool:
        """Returns False: the next stream begins with new frames."""
        return False


class Attachments:
    """Attaches an inbox's queues at one slice. `queues`: the inbox's own dictionary, handle -> queue.

    `send`: puts a frame on the open stream. `on_refused`: called when the slice refuses attaches and repeating them
    would not help. `on_lives_ended`: called with two lists of handles. The queues of the first may have begun another
    life here since they were last attached. The second has those of the first that had a part here: these queues were
    dropped. `on_ack_timeouts`: called with the ack timeouts of queues here, in milliseconds, by handle; 0: there is
    none. `on_attached_again`: called with handles whose attach was sent once more on the same stream.
    """

    def __init__(
        self,
        slice_name: str,
        queues: Mapping[int, bytes],
        window: wire.Attach,
        send: Callable[[Frame], None],
        on_refused: Callable[[ShoalError], None],
        on_lives_ended: Callable[[Sequence[int], Sequence[int]], None],
        on_ack_timeouts: Callable[[Mapping[int, int]], None],
        on_attached_again: Callable[[Sequence[int]], None],
    ) -> None:
        self.absent: set[int] = set()
        """Handles whose queue had no part here when attached."""
        self.tells_nacks_taken = False
        """True if the slice tells which numbered nacks it had looked at."""
        self.epoch = 0
        """The epoch of the slice's leader, as it told last; 0: it did not."""
        self.unconfirmed: set[int] = set()
        """Handles that were attached before, and are to be attached again: the life of their queue is not known."""
        self.resets_seen = 0
        """How many handles of ended lives this stream has told, also of queues that left (`Acks` of the contract)."""
        self.changed = asyncio.Event()
        """Set at each change; clear it before waiting."""
        self._slice_name = slice_name
        self._queues = queues
        self._window = window
        self._send = send
        self._on_refused = on_refused
        self._on_lives_ended = on_lives_ended
        self._on_ack_timeouts = on_ack_timeouts
        self._on_attached_again = on_attached_again
        self._open = False
        self._failure: ShoalError | None = None
        self._detaches = 0
        """How many detaches were sent."""
        self._unsent: dict[int, int] = {}
        """Handle -> how many detaches were sent when it was asked for; ascending."""
        self._unanswered: set[int] = set()
        """Handles not known to be attached on the current stream; holds all of `_unsent`."""
        self._no_room: dict[int, ShoalError] = {}
        """Handles that the slice has no room for now; their attach is sent again."""
        self._lives: dict[int, int] = {}
        """Handle -> life of its queue's part here, as the slice told last; 0: there was no part, or its life ended."""
        self._delivered: set[int] = set()
        """Handles without a life for which messages came on this stream before the answer to their attach."""
        self._early: dict[int, int] = {}
        """The lives of parts that came before the answer to the attach, which may say that there was none."""
        self._ended_early: set[int] = set()
        """Handles of which a life ended on this stream before the answer to their attach."""
        self._presumed: set[int] = set()
        """Handles whose life was taken for another one before the answer to their attach."""
        self._until_answered = (self._delivered, self._ended_early, self._presumed)

    @property
    def complete(self) -> bool:
        """Returns whether a stream is open and all queues are attached on it."""
        return self._open and not self._unanswered

    @property
    def is_open(self) -> bool:
        """Returns whether a stream is open."""
        return self._open

    def begin_stream(self) -> list[AttachFrame]:
        """Returns the frames that a new stream begins with. They attach all queues of the inbox."""
        self._open = True
        self.resets_seen = 0
        self._unsent = dict.fromkeys(self._queues, self._detaches)
        self._unanswered = set(self._queues)
        self._no_room = {}
        self.unconfirmed = set(self._lives)
        self._early = {}
        for noted in self._until_answered:
            noted.clear()
        return [AttachFrame(self, self._detaches) for _ in range(0, len(self._queues), ATTACH_QUEUES_MAX)]

    def end_stream(self) -> None:
        """Ends a lost stream: nothing is attached any more."""
        self._open = False
        self._never_told(self._delivered)
        self._unanswered = set(self._queues)
        self.changed.set()

    def attach(self, handles: Sequence[int]) -> None:
        """Begins to attach; `wait` tells when it is done. If no stream is open, the next one begins with these."""
        self._unsent.update(dict.fromkeys(handles, self._detaches))
        self._unanswered.update(handles)
        self.unconfirmed.update(handle for handle in handles if handle in self._lives)
        self._presumed.difference_update(handles)
        for _ in range(0, len(handles) if self._open else 0, ATTACH_QUEUES_MAX):
            self._send(AttachFrame(self, self._detaches))

    async def wait(self, handles: Sequence[int], deadline: float) -> None:
        """Waits until these are attached. Raises DeadlineExceeded, ResourceExhausted, or the slice's refusal."""
        wanted = set(handles)
        try:
            async with asyncio.timeout_at(deadline):
                while not self._unanswered.isdisjoint(wanted):
                    self._raise_refusal(wanted)
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            raise deadline_exceeded(f"attach at slice {self._slice_name}") from None

    def give_up(self, handles: Iterable[int]) -> None:
        """Leaves out of the attaches to come what leaves the inbox, and is detached a little later. Nothing waits for
        these any more."""
        for handle in handles:
            if handle in self._unsent or handle in self._no_room:
                self._unsent.pop(handle, None)
                self._no_room.pop(handle, None)
                self._unanswered.discard(handle)
        self.changed.set()

    def leave(self, handles: Sequence[int]) -> list[asyncio.Future[wire.Answer]]:
        """Detaches. Returns the answers to come, which nothing has to wait for; none if no stream is open."""
        for handle in handles:
            self._unsent.pop(handle, None)
            self._no_room.pop(handle, None)
            self._lives.pop(handle, None)
            self._early.pop(handle, None)
        for left in (self._unanswered, self.absent, self.unconfirmed, *self._until_answered):
            left.difference_update(handles)
        answers: list[asyncio.Future[wire.Answer]] = []
        for start in range(0, len(handles) if self._open else 0, ATTACH_QUEUES_MAX):
            future: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()
            future.add_done_callback(_retrieve)
            answers.append(future)
            self._send(DetachFrame(wire.Detach(handles=handles[start : start + ATTACH_QUEUES_MAX]), future))
            self._detaches += 1
        return answers

    def fill(self, attach: wire.Attach, detaches: int) -> list[int]:
        """Writes the next handles to attach that were asked for before another detach than the first `detaches`, at
        most as many as one frame may have. Returns them."""
        before = takewhile(lambda asked: asked[1] <= detaches, self._unsent.items())
        handles = [handle for handle, _ in islice(before, ATTACH_QUEUES_MAX)]
        for handle in handles:
            del self._unsent[handle]
        attach.CopyFrom(self._window)
        attach.handles.extend(handles)
        attach.queues.extend([self._queues[handle] for handle in handles])
        return handles

    def answered(self, handles: Sequence[int], answer: wire.Attached) -> None:
        """Records the answer to an attach of these handles."""
        for left in (self._unanswered, self.absent, self.unconfirmed):
            left.difference_update(handles)
        self.absent.update(handle for handle in answer.absent if handle in self._queues)
        self.tells_nacks_taken, self.epoch = answer.tells_nacks_taken, answer.epoch
        if len(answer.lives) == len(handles):  # A slice of an older version sends no lives.
            pairs = zip(handles, answer.lives, strict=True)
            self._learn(handles, [self._told_early(handle) or life for handle, life in pairs])
        for noted in self._until_answered:
            noted.difference_update(handles)
        self.learn_ack_timeouts(handles, answer.ack_timeouts_ms or [0] * len(handles))
        self.changed.set()

    def parts_came(self, told: wire.AckTimeouts) -> list[int]:
        """Records what the slice tells of parts that queues got after they were attached. Returns their handles, as far
        as the lives are known. Raises Malformed."""
        handles = len(told.handles)
        if len(told.ms) != handles or len(told.lives) not in (0, handles):
            why = f"{len(told.ms)} ack timeouts and {len(told.lives)} lives of {handles} queues"
            raise unreadable(self._slice_name, why)
        came = []
        for handle, life in zip(told.handles, told.lives, strict=False):  # An older slice tells no lives.
            if handle in self._unanswered and handle not in self._ended_early:
                self._early[handle] = life
            elif handle in self._queues:
                self._lives[handle] = life
                came.append(handle)
        self.learn_ack_timeouts(told.handles, told.ms)
        return came

    def learn_ack_timeouts(self, handles: Iterable[int], timeouts_ms: Iterable[int]) -> None:
        """Reports the ack timeouts of queues, in milliseconds; 0: there is none."""
        timeouts = zip(handles, timeouts_ms, strict=True)
        self._on_ack_timeouts({handle: ms for handle, ms in timeouts if handle in self._queues})

    def refused(self, handles: Sequence[int], error: ShoalError) -> None:
        """Ends a frame that was refused as a whole. If the slice has no room, tries again later. If the outcome is
        unknown, the stream is lost, and the next stream attaches these."""
        self._forget_early(handles)
        self._ended_early.difference_update(handles)
        self._never_told(self._delivered.intersection(handles))
        if isinstance(error, ResourceExhausted):
            if not self._no_room:
                _log.warning("slice %s attaches no more queues now, and is asked again: %s", self._slice_name, error)
                asyncio.get_running_loop().call_later(ATTACH_AGAIN_S, self._attach_again)
            self._no_room.update(dict.fromkeys((handle for handle in handles if handle in self._queues), error))
            self.changed.set()
        elif not isinstance(error, OutcomeUnknown):
            self._on_refused(error)

    def fail(self, error: ShoalError) -> None:
        """Makes the calls that wait raise `error`."""
        self._failure = error
        self.changed.set()

    def has(self, handle: int) -> bool:
        """Returns whether the handle is attached on the open stream, as far as known."""
        return self._open and handle not in self._unanswered

    def ended(self, handle: int) -> None:
        """Records that the slice has the handle attached no more. `attach` attaches it again, perhaps to another life,
        of which nothing is told meanwhile."""
        self._unanswered.add(handle)
        for left in (self.unconfirmed, self._ended_early):
            left.discard(handle)
        self.changed.set()

    def life_of(self, handle: int) -> int:
        """Returns the life of a handle's queue here; 0: it has no part, or the slice has not told it."""
        return max(0, self._lives.get(handle, 0))

    def delivering(self, handles: Iterable[int]) -> None:
        """Notes that messages came for these handles. It need be called only while not `complete`."""
        for handle in handles:
            if handle in self._unanswered and handle not in self._lives:
                self._delivered.add(handle)

    def _never_told(self, handles: Iterable[int]) -> None:
        """Notes that no answer will tell the lives whose messages these handles have got."""
        for handle in list(handles):
            self._delivered.discard(handle)
            if handle in self._queues:
                self._lives.setdefault(handle, _UNKNOWN)

    def without_part(self, handles: Iterable[int]) -> list[int]:
        """Returns those whose queue had a part here and has none now, as far as the slice told."""
        return [handle for handle in handles if self._lives.get(handle) == 0]

    def lives_ended(self, handles: Collection[int]) -> None:
        """Records what the slice says: the lives of these handles' queues ended on this stream."""
        self.resets_seen += len(handles)
        ended = [handle for handle in handles if handle in self._queues]
        self._forget_early(ended)
        self._ended_early.update(self._unanswered.intersection(ended))
        self._lives.update(dict.fromkeys(ended, 0))
        self._on_lives_ended(ended, ended)

    def presume_ended(self, handles: Collection[int]) -> None:
        """Takes the lives of unconfirmed handles for ended, before the slice tells: what has come of them on this
        stream, and comes, is handed out as new. If they go on, it is handed out a second time, and of acks that have no
        answer it is not known whether they count."""
        _log.info(
            "slice %s sent much before it told the lives of %d queues: what this inbox had of them may come again",
            *(self._slice_name, len(handles)),
        )
        self.unconfirmed.difference_update(handles)
        self._presumed.update(handles)
        # Of those whose life ended on this stream that is known; what has come since is of the next one.
        ended = [handle for handle in handles if handle in self._queues and self._lives.get(handle) != 0]
        self._lives.update(dict.fromkeys(ended, _UNKNOWN))
        if ended:
            self._on_lives_ended(ended, [])

    def _learn(self, handles: Sequence[int], lives: Iterable[int]) -> None:
        """Records the lives. Reports handles whose queue has another life now, or may have had one meanwhile: they
        have seen nothing of it. Not those that were presumed to have ended and have a part, nor those without a part
        that were told of the end before."""
        ended, dropped = [], []
        for handle, life in zip(handles, lives, strict=True):
            if handle in self._queues:
                before = self._lives.get(handle)
                self._lives[handle] = life
                goes_on = life != 0 and life == before
                known = self._presumed if life else self._ended_early
                if before is not None and not goes_on and handle not in known:
                    ended.append(handle)
                    if before > 0:
                        dropped.append(handle)
        if ended:
            self._on_lives_ended(ended, dropped)

    def _told_early(self, handle: int) -> int:
        """Returns the life that was told on this stream before the answer to the handle's attach; 0: none was."""
        return self._early.pop(handle, 0) or (self.life_of(handle) if handle in self._ended_early else 0)

    def _forget_early(self, handles: Iterable[int]) -> None:
        for handle in handles:
            self._early.pop(handle, None)

    def _raise_refusal(self, wanted: set[int]) -> None:
        if self._failure is not None:
            raise self._failure
        for handle in self._no_room.keys() & wanted:
            raise self._no_room[handle]

    def _attach_again(self) -> None:
        no_room, self._no_room = list(self._no_room), {}
        handles = [handle for handle in no_room if handle in self._unanswered and handle in self._queues]
        self.attach(handles)
        if self._open:
            self._on_attached_again(handles)


def _retrieve(future: asyncio.Future[wire.Answer]) -> None:
    """Reads the future's error, so that asyncio does not report it where nothing waits for it."""
    if not future.cancelled():
        future.exception()
