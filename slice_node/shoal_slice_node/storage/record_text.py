"""Says what a journal record requested, in one line for operators."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Iterable
from itertools import chain

from shoal_contract.decode_error import DecodeError
from shoal_contract.journal_record import Record
from shoal_contract.names import show
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import Kind, decode_change
from shoal_slice_node.core.verbs.table import columns_of, verb_of

_NAMES_SHOWN = 5


def kind_name(kind: int) -> str:
    try:
        return Kind(kind).name
    except ValueError:
        return f"kind {kind}"


def record_text(record: Record) -> str:
    """Returns the record's kind, epoch, time and size; for a change also its steps with their first few names."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.time_ms / 1000))
    text = f"{kind_name(record.kind)} of epoch {record.epoch}, {at}, {len(record.payload)} bytes"
    return f"{text}: {_change_text(record.payload)}" if record.kind == Kind.CHANGE else text


def _change_text(payload: bytes) -> str:
    try:
        change = wire.Change.FromString(decode_change(payload)[1])
    except (DecodeError, ValueError, IndexError, struct.error):
        return "a change that cannot be read"
    kinds: Counter[str] = Counter()
    names: dict[str, None] = {}
    for step in change.steps:
        columns, verb = columns_of(step), verb_of(step)
        kinds["unknown" if verb is None else verb.name] += max(1, len(columns.keys), len(columns.queues))
        names |= dict.fromkeys(show(name) for name in chain(columns.queues, columns.keys))
    counted = "a transaction: " if change.atomic else ""
    counted += ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"{counted}; names: {_few(names)}" if names else counted


def _few(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - _NAMES_SHOWN} more" if len(shown) > _NAMES_SHOWN else ""
    return ", ".join(shown[:_NAMES_SHOWN]) + more
