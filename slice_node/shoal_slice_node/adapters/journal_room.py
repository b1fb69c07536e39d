"""Keeps whether the journal takes changes: from a batch that it refused for lack of room until there is room again.

That a small batch still fits the rest of a segment is no sign of room. The sign is the next segment: its making needs
space for all of it. Belongs here: what operators and clients are told. Not here: the disk (journal_files).
"""

from __future__ import annotations

import asyncio
import logging

from shoal_contract.data_identity import DataIdentity
from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.adapters.commit_loop import JournalThread
from shoal_slice_node.adapters.limits import JOURNAL_ROOM_LOOK_MS
from shoal_slice_node.storage.journal_files import Journal

DISK: str = "disk bytes"
"""The subject of errors that say that a disk is full."""

FREEING: str = "acks, unbinds, purges and drops"
"""What is taken on a full disk, as long as there is a reserve."""

_log = logging.getLogger(__name__)


class JournalRoom:
    """Knows whether `journal` lacks room. `short`: the error for all changes but those that free room, while there is
    no next segment, nor room for it; else None."""

    def __init__(self, journal: Journal, in_journal_thread: JournalThread) -> None:
        self.short: ResourceExhausted | None = None
        self._trouble = ""
        self._journal = journal
        self._in_journal_thread = in_journal_thread
        self._lacking = asyncio.Event()
        self._taken_since = False
        self._full_disk = False

    @property
    def trouble(self) -> str:
        """Returns why changes are refused, as a sentence; "" while they are taken."""
        return self._trouble + (f", but for {FREEING}" if self._trouble and self.short else "")

    def refused(self, error: ResourceExhausted) -> ResourceExhausted:
        """Notes that the journal refused a batch. Returns the error for those that sent it: they cannot see the path of
        the journal, and need the name of the slice."""
        self._taken_since = False
        self._full_disk = error.subject == DISK
        self._look()
        if not self._trouble:
            full = error.subject == DISK
            self._trouble = "the disk of its journal is full" if full else error.message
            self._trouble += ": changes are refused until there is room"
            self._lacking.set()
            _log.error(
                "the journal takes no changes: %s. They are refused until there is room, but for %s; reads go on. %s;"
                " no restart is needed",
                *(error.message, FREEING, "Drop or purge, make room, or grow the disk" if full else "Make room"),
            )
        if error.subject != DISK:
            return error
        return self._full()

    def _full(self) -> ResourceExhausted:
        return ResourceExhausted(f"the disk of {self._slice()} is full: the change was not stored", subject=DISK)

    def _look(self) -> None:
        self.short = self._full() if self._full_disk and not self._journal.next_segment.begun else None

    def taken(self) -> None:
        """Notes that the journal took a batch."""
        self._taken_since = True

    async def run(self) -> None:
        """Looks for room while there is none, until it is cancelled."""
        if await self._in_journal_thread(self._journal.ends_without_next):
            self.refused(ResourceExhausted("no disk space for its next segment", subject=DISK))
        while True:
            await self._lacking.wait()
            await self._room()
            self._lacking.clear()
            self._trouble, self.short, self._full_disk = "", None, False
            _log.info("the journal has disk space again: changes are taken")

    async def _room(self) -> None:
        """Returns once the next segment is made, and either it could not be made before, or a batch was taken since the
        last refusal: it may have been made ahead, before the disk was full."""
        lacked = False
        while True:
            made = await self._in_journal_thread(self._journal.has_next_segment)
            self._look()
            if made and (lacked or self._taken_since):
                return
            lacked = lacked or not made
            await asyncio.sleep(JOURNAL_ROOM_LOOK_MS / 1000)

    def _slice(self) -> str:
        identity = self._journal.identity
        return f"slice {DataIdentity.decode(identity).slice}" if identity else "this slice"
