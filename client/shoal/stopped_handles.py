"""Knows which handles of an inbox get nothing more from one slice, and says so to it, anew on each stream; and the
queues of those that leave the inbox, until the slice has detached them.

Not here: what comes all the same, and is given back (inbox_slice.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from shoal.core.frames import Frame
from shoal.nack_sender import NackSender
from shoal_contract.wire import slice_pb2 as wire


class StoppedHandles:
    """Stops handles at one slice, over all its streams."""

    def __init__(self, nacks: NackSender) -> None:
        self.leaving: dict[int, bytes] = {}
        """Handle -> queue, of those that leave the inbox: a gap of theirs may still come, and is told once only."""
        self._nacks = nacks
        self._asked_in: dict[int, int] = {}
        """Handle -> the number of the stream that was open when it was stopped; 0: none was."""

    def add(self, handles: Iterable[int], stream: int) -> None:
        """Stops handles. `stream`: the number of the open stream; 0: none is open, so the next one begins with it."""
        handles = list(handles)
        for handle in handles:
            self._asked_in.setdefault(handle, stream)
        if stream:
            self._nacks.stop(handles)

    def leave(self, handles: Iterable[int]) -> list[int]:
        """Forgets handles that leave the inbox. Returns those that were stopped."""
        return [handle for handle in handles if self._asked_in.pop(handle, None) is not None]

    def detached(self, handles: Iterable[int], answers: Sequence[asyncio.Future[wire.Answer]]) -> None:
        """Records that handles were detached. Nothing comes of them behind the last answer; none: no stream is open."""

        def forget(_: object = None) -> None:
            for handle in handles:
                self.leaving.pop(handle, None)

        if answers:
            answers[-1].add_done_callback(forget)
        else:
            forget()

    def first_frames(self, handles: Iterable[int]) -> list[Frame]:
        """Returns the frames that stop those of the attached handles that were stopped before, on a stream that
        begins."""
        return self._nacks.stop_frames(self._of(handles)) if self._asked_in else []

    def attached_again(self, handles: Iterable[int]) -> None:
        """Stops those that were stopped before, after another attach of these handles was sent."""
        self._nacks.stop(self._of(handles))

    def late(self, handles: Sequence[int], stream: int) -> list[int]:
        """Returns those that were stopped before this stream began: what it brings of them, it brings by mistake."""
        return [handle for handle in handles if self._asked_in.get(handle, stream) != stream]

    def __contains__(self, handle: int) -> bool:
        return handle in self._asked_in

    def __bool__(self) -> bool:
        """Returns whether there are any."""
        return bool(self._asked_in)

    def _of(self, handles: Iterable[int]) -> list[int]:
        return [handle for handle in handles if handle in self._asked_in]
