"""Rooms of frames, for tests."""

from __future__ import annotations

from shoal_slice_node.adapters.answer_room import AnswerRoom
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.adapters.kept_frames import KeptFrames


def kept_frames_of(small_bytes: int, reads_bytes: int, others_bytes: int, large: FrameRoom) -> KeptFrames:
    """With room for all answers."""
    return KeptFrames(small_bytes, reads_bytes, others_bytes, large, AnswerRoom(1 << 30))
