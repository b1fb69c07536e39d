"""Finds the messages that dead letters are copies of. The chunk that was decoded last is kept: others of its messages
are often next."""

from __future__ import annotations

from shoal_slice_node.core.apply.log_rows import LogRows, StoredChunk
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.streams import Stream


class Originals:
    """Finds the originals of dead letters. `opened_bytes`: the bytes of all chunks that it has decoded, by which
    callers bound their steps. Memory: one chunk."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._key_id = b""
        self._kept: StoredChunk | None = None
        self.opened_bytes = 0

    def chunk_with(self, stream: Stream, offset: int) -> StoredChunk | None:
        """Returns the chunk, decoded, that holds a message of the stream's key; None: the message is gone."""
        found = self._state.key_by_id(stream.key_id)
        if found is None or not found[1].low <= offset < found[1].head:
            return None
        kept = self._kept
        if kept is None or self._key_id != stream.key_id or not kept.first <= offset < kept.end:
            kept = LogRows(self._state.tables.log, found[1]).at(offset)
            if kept is None or offset < kept.first:
                return None
            kept.opened()
            self.opened_bytes += len(kept.chunk)
            self._key_id, self._kept = stream.key_id, kept
        return kept

    def size_bytes(self, stream: Stream, offset: int) -> int:
        """Returns the bytes of a message's body and headers; 0 if it is gone."""
        stored = self.chunk_with(stream, offset)
        if stored is None:
            return 0
        chunk, index = stored.opened(), offset - stored.first
        headers = chunk.headers[index].ByteSize() if chunk.headers else 0
        return len(chunk.bodies[index]) + headers

    def forget(self) -> None:
        """Forgets the chunk that was kept."""
        self._kept = None
