"""Pauses attachments whose sessions did not read in time what they were given: they get nothing until they read.

Else what was taken back from such a session would go to it again, with each ack timeout. A session reads when its
transport could send something. Not here: taking back what waits (timeouts).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.sessions import Session

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.registry import Registry


def pause(registry: Registry, attachment: Attachment) -> None:
    """Gives an attachment nothing more until its session reads: its transport is asked."""
    attachment.session.pause(attachment)
    registry.dirty[attachment.session.number] = attachment.session


def reads(registry: Registry, session: Session) -> None:
    """Notes that a session reads: what was paused goes on in a turn."""
    session.reads()
    if session.resumed:
        registry.roomy[session] = None


def resume(registry: Registry, session: Session, attachments_max: int) -> None:
    """Lines up some attachments of a session that reads again."""
    for _ in range(min(attachments_max, len(session.resumed))):
        attachment = session.resume_next()
        if attachment.withdrawing:
            session.pause(attachment)  # Its transport is asked again when all is taken back.
            continue
        attachment.feed.line_up(attachment)
        registry.wake(attachment.feed)
    if session.resumed:
        registry.roomy[session] = None


def note_again(registry: Registry, attachment: Attachment) -> None:
    """Sees to it that an attachment's pause ends, if nothing else would."""
    session = attachment.session
    if not attachment.paused or session.closed:
        return
    if attachment not in session.paused and attachment not in session.resumed:
        pause(registry, attachment)
    if session.resumed:
        registry.roomy[session] = None
