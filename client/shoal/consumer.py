"""Defines what a session tells its owner: deliveries, the beginning and the end of its streams.

Not here: what an inbox does with it (inbox_slice.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core.frames import Frame
from shoal_contract.errors import Malformed, ShoalError
from shoal_contract.wire import slice_pb2 as wire


class Consumer:
    """Receives what a session tells its owner. This one consumes nothing."""

    @property
    def holding(self) -> bool:
        """Returns whether `delivered` is to be called for a response without deliveries too."""
        return False

    def first_frames(self) -> Sequence[Frame]:
        """Returns the frames that a new stream must begin with, besides unanswered changes."""
        return ()

    def stream_ended(self) -> None:
        """Is called when the stream is lost. Frames that end with it are gone."""

    def refused(self, error: ShoalError) -> None:
        """Is called when the slice refuses the stream itself, and repeating would not help."""

    async def delivered(self, response: wire.SessionResponse) -> None:
        """Takes a response that tells of queues: deliveries, gaps, resets, ended handles, new parts; while `holding`,
        any response. While it waits, the stream is not read, which is backpressure."""
        raise Malformed("the slice sent deliveries to a session that attached no queue")
