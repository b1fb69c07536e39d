"""Names the sources of requests to the node under test: sessions of two connections, and unary calls."""

from __future__ import annotations

from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.turns import Source

UNARY = Source("unary", "unary")


def source_of(session: Session) -> Source:
    """Returns the source of a session's requests: sessions share two connections."""
    return Source(session.number % 2, session.number)
