"""Keeps which queues an inbox lost to another session, as they are exclusive, and makes the error that says so.

The home of a queue decides. What another slice says is of no weight: while the home has the queue attached here, the
inbox attaches it there again. So two consumers never each keep a part of one queue. Not here: what the slices decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from shoal.attachments import Attachments
from shoal.limits import EXCLUSIVE_AGAIN_S
from shoal.telling import Telling
from shoal_contract.errors import ShoalError


class LostQueues:
    """Keeps the lost queues of one inbox. `queues`: the inbox's own dictionary, handle -> queue. `home_of`: returns the
    slice of a queue's direct key. `attachments_at`: returns the inbox's attachments at a slice. `forget`: removes a
    queue from the inbox. `wake`: wakes what waits for messages. `ends`: False for an inbox that was opened without
    queues: there they come and go, and it waits for those to come."""

    def __init__(
        self,
        queues: Mapping[int, bytes],
        home_of: Callable[[bytes], str],
        attachments_at: Callable[[str], Attachments],
        forget: Callable[[int], None],
        telling: Telling,
        wake: Callable[[], None],
        ends: bool,
    ) -> None:
        self._queues = queues
        self._home_of = home_of
        self._attachments_at = attachments_at
        self._forget = forget
        self._telling = telling
        self._wake = wake
        self._ends = ends
        self._errors: dict[int, ShoalError] = {}
        """Handle -> why it left the inbox, until a call has raised it. The inbox had each queue once, so it has at most
        as many of these as it had queues."""
        self._attaching: set[int] = set()
        """Handles whose attach a call waits for: it raises their errors."""
        self._again: set[tuple[str, int]] = set()
        """Slices and handles to be attached again."""
        self._timer: asyncio.TimerHandle | None = None

    def ended(self, slice_name: str, handle: int, error: ShoalError) -> None:
        """Records that a slice gave this queue to another session, or left it to it."""
        if self._home_of(self._queues[handle]) == slice_name:
            self._errors[handle] = error
            if handle not in self._attaching:
                self._telling.error(error)
            self._forget(handle)
            self._wake()
            return
        self._again.add((slice_name, handle))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EXCLUSIVE_AGAIN_S, self._attach_again)

    def begin_attach(self, handles: Iterable[int]) -> None:
        """Notes that a call attaches these, until `end_attach`."""
        self._attaching.update(handles)

    def end_attach(self, handles: Iterable[int]) -> ShoalError | None:
        """Returns the error of one of these handles, for the call that attached them; None if none left the inbox."""
        self._attaching.difference_update(handles)
        found = [error for handle in handles if (error := self._errors.pop(handle, None)) is not None]
        return found[0] if found else None

    def take_error(self) -> ShoalError | None:
        """Returns an error that no call has raised. The last one stays where no message can come, as the inbox has no
        queue."""
        errors = {handle: error for handle, error in self._errors.items() if handle not in self._attaching}
        for handle, error in errors.items():
            if self._queues or len(errors) > 1 or not self._ends:
                del self._errors[handle]
            return error
        return None

    def close(self) -> None:
        """Attaches nothing again any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _attach_again(self) -> None:
        self._timer = None
        waiting, self._again = self._again, set()
        for slice_name, handle in waiting:
            if handle not in self._queues:
                continue
            if self._attachments_at(self._home_of(self._queues[handle])).has(handle):
                self._attachments_at(slice_name).attach([handle])
            else:
                self._again.add((slice_name, handle))
        if self._again:
            self._timer = asyncio.get_running_loop().call_later(EXCLUSIVE_AGAIN_S, self._attach_again)
