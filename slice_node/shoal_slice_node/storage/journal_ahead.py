"""Makes the journal's next segment before it is needed, so that no append waits for 64 MiB of zeros, and a full disk is
known before a change needs the room.

Belongs here: making a segment under a name that no start-up reads. Not here: when it takes its place (journal_files).
"""

from __future__ import annotations

import errno
import logging
import os
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Final

from shoal_slice_node.storage.files import File, Files
from shoal_slice_node.storage.journal_segment import NONCE_BYTES, encode_head
from shoal_slice_node.storage.limits import ZERO_FILL_BYTES

PREPARED: Final = "next.prepared"

_log = logging.getLogger(__name__)


class NextSegment:
    """Makes segments of `segment_bytes`, one at a time. `identity`: of the data, for their heads. Its methods are for
    the thread that writes the journal; `background` runs what they begin."""

    def __init__(self, files: Files, folder: Path, segment_bytes: int, background: Executor, identity: bytes) -> None:
        self.identity = identity
        self.leave_bytes = 0
        """How much must be free beside a new segment: for a checkpoint, which alone lets segments go."""
        self._files = files
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._background = background
        self._made: Future[bytes] | None = None
        """Its nonce, once it is made."""

    @property
    def begun(self) -> bool:
        """Returns whether the next segment is made, or its making is under way."""
        return self._made is not None and not (self._made.done() and self._made.exception() is not None)

    def begin(self) -> None:
        """Begins to make it ahead, unless that was tried already."""
        if self._made is None:
            self._made = self._background.submit(self._make)

    def is_made(self) -> bool:
        """Returns whether it is on disk. If it is not and the disk may have room for it, its making begins."""
        made = self._made
        if made is not None and not made.done():
            return False
        if made is not None and made.exception() is None:
            return True
        if self._has_room():  # Else it would fill the disk, and fail.
            self._made = None
            self.begin()
        return False

    def ensure(self) -> None:
        """Returns once it is on disk. It is made now if it was not made ahead, or could not be. Raises OSError."""
        nonce = self.take()
        self._made = Future()
        self._made.set_result(nonce)

    def take(self) -> bytes:
        """Returns the nonce of the segment that is ready under the name PREPARED, and forgets it. It is made now if it
        was not made ahead, or could not be: there may be disk space by now. Raises OSError."""
        made, self._made = self._made, None
        if made is not None:
            try:
                return made.result()
            except OSError as error:
                _log.info("the next journal segment could not be made ahead: %s. It is made when it is needed", error)
        return self._make()

    def _has_room(self) -> bool:
        return self._files.free_space_bytes(self._folder) >= self._segment_bytes + self.leave_bytes

    def close(self) -> None:
        """Waits for what was begun."""
        self._background.shutdown()

    def _make(self) -> bytes:
        """Makes a segment of a head and zeros, on disk, under a name that no start-up reads. Returns its nonce."""
        if self.leave_bytes and not self._has_room():
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: a checkpoint needs what is free")
        nonce = os.urandom(NONCE_BYTES)
        path = self._folder / PREPARED
        if PREPARED in self._files.names(self._folder):
            self._files.remove(path)
        file = self._files.create(path)
        try:
            file.allocate(self._segment_bytes)
            fill_with_zeros(file, 0, self._segment_bytes)
            file.write_at(0, encode_head(nonce, self.identity))
            file.sync()
        except OSError:
            self._files.remove(path)
            raise
        finally:
            file.close()
        return nonce


def fill_with_zeros(file: File, position: int, end_position: int) -> None:
    """Writes zeros from `position` on, and syncs them, in steps of ZERO_FILL_BYTES. Raises OSError."""
    while position < end_position:
        step = min(ZERO_FILL_BYTES, end_position - position)
        file.write_at(position, bytes(step))
        file.sync()
        position += step
