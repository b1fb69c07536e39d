"""Lists all verbs, by their field in shoal.v1.Step. A new verb is a module beside this one and a line here."""

from __future__ import annotations

from typing import Final

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.verbs.ack import ACK
from shoal_slice_node.core.verbs.bind import BIND, LIMITED_BIND
from shoal_slice_node.core.verbs.configure import CONFIGURE
from shoal_slice_node.core.verbs.declare import DECLARE
from shoal_slice_node.core.verbs.drop import DROP
from shoal_slice_node.core.verbs.farewell import FAREWELL
from shoal_slice_node.core.verbs.import_ import IMPORT
from shoal_slice_node.core.verbs.publish import PUBLISH
from shoal_slice_node.core.verbs.purge import PURGE
from shoal_slice_node.core.verbs.unbind import UNBIND
from shoal_slice_node.core.verbs.verb import Columns, Verb

VERBS: Final[dict[str, Verb]] = {
    "declares": DECLARE,
    "binds": BIND,
    "unbinds": UNBIND,
    "publishes": PUBLISH,
    "drops": DROP,
    "purges": PURGE,
    "imports": IMPORT,
    "acks": ACK,
    "configures": CONFIGURE,
    "farewells": FAREWELL,
    "limited_binds": LIMITED_BIND,
}


def verb_of(step: wire.Step) -> Verb | None:
    """Returns a step's verb; None for one that this version does not know."""
    return VERBS.get(step.WhichOneof("step") or "")


def columns_of(step: wire.Step) -> Columns:
    """Returns what a step names: nothing, if this version does not know its verb."""
    field = step.WhichOneof("step") or ""
    verb = VERBS.get(field)
    return Columns() if verb is None else verb.columns(getattr(step, field))
