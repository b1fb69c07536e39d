"""Knows which handles of an inbox get nothing more from one slice, and says so to it, anew on each stream.

Not here: what comes all the same, and is given back (inbox_slice.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.core.frames import Frame
from shoal.nack_sender import NackSender


class StoppedHandles:
    """Stops handles at one slice, over all its streams."""

    def __init__(self, nacks: NackSender) -> None:
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

    def __bool__(self) -> bool:
        """Returns whether there are any."""
        return bool(self._asked_in)

    def _of(self, handles: Iterable[int]) -> list[int]:
        return [handle for handle in handles if handle in self._asked_in]
