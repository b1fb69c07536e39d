"""`shoal repair`: repairs a stopped node's journal, as far as an operator may, when the node does not start."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shoal_contract.errors import ShoalError
from shoal_contract.journal_record import Record
from shoal_contract.names import show
from shoal_local.commands import ACCEPT_EMPTY
from shoal_local.record import RECORD
from shoal_ops import output
from shoal_ops.commands.node_folders import one_node
from shoal_ops.exits import DONE, FOUND
from shoal_slice_node.core.apply.records import Kind, decode_change
from shoal_slice_node.core.verbs.changes import check_change
from shoal_slice_node.storage.journal_repair import JournalRepair, Loss
from shoal_slice_node.storage.record_text import kind_name, record_text
from shoal_slice_node.storage.stopped_folder import stopped

_KEYS_SHOWN: Final = 5
_GAP: Final = "Those messages are lost, and consumers are told of a gap; later messages keep their offsets."
_SHIFTED: Final = (
    "If it was applied before, later messages of those keys get lower offsets than they had, and acks that the journal"
    " has for them hit other messages: some are lost, some come again. To avoid that, use a version that can apply it."
)


def skip(path: Path, lsn: int, confirmed: bool) -> int:
    """Sets one record aside. Returns the exit code: FOUND where it only prints what would be lost."""
    with stopped(one_node(path)) as store:
        repair = JournalRepair(path, store)
        place = repair.find(lsn)
        output.say(f"record {lsn}: {record_text(place.record)}")
        if not confirmed:
            output.say("Once it is set aside, what it asked for is lost. Add --yes to do so.")
            for line in _published(place.record):
                output.say(line)
            return FOUND
        kept = repair.set_aside(place)
    output.say(f"Record {lsn} is set aside. The segment as it was is kept in {kept}")
    output.say(f"Next: shoal check {path}, then start the node; it warns of the record at each replay.")
    return DONE


def _published(record: Record) -> Iterator[str]:
    """Yields what becomes of the messages that a record published once it is set aside, and of those behind them."""
    if record.kind in (Kind.DUE, Kind.RETRY, Kind.FAREWELL, Kind.EXPIRE):
        yield f"It may publish (delayed messages, dead letters, farewells). {_SHIFTED}"
    if record.kind != Kind.CHANGE:
        return
    try:
        change = decode_change(record.payload)[1]
        steps = check_change(change).change.steps
    except (ShoalError, ValueError, struct.error):
        yield f"This version cannot read what it asked for. It may publish. {_SHIFTED}"
        return
    keys = sorted({key for step in steps if not step.publishes.not_before_ms for key in step.publishes.keys})
    if keys:
        more = f" and {len(keys) - _KEYS_SHOWN:,} more" if len(keys) > _KEYS_SHOWN else ""
        yield f"It publishes to {', '.join(map(show, keys[:_KEYS_SHOWN]))}{more}. {_GAP}"


def cut(path: Path, confirmed: bool) -> int:
    """Gives up everything from the first damage on. Returns the exit code: FOUND where it only prints what would be
    lost."""
    with stopped(one_node(path)) as store:
        repair = JournalRepair(path, store)
        loss = repair.find_damage()
        if loss is None:
            output.say("Nothing is damaged: every record above the checkpoint can be read.")
            return DONE
        for line in _told(loss):
            output.say(line)
        if not confirmed:
            output.say("What was acknowledged in them is lost. Add --yes to cut the journal there.")
            return FOUND
        kept = repair.cut(loss)
    output.say(f"The journal ends at record {loss.first_lsn - 1} now. The segments as they were are kept in {kept}")
    output.say(
        f"Next: shoal check {path}, then start the node. If it is refused as an old copy, etcd knows that it had more:"
        f" start it once with {_accepting(path)}."
    )
    return DONE


def _accepting(path: Path) -> str:
    cluster, name = path.absolute().parent, path.absolute().name
    if (cluster / RECORD).is_file():
        return f"`shoal up --data {cluster} {ACCEPT_EMPTY} {name}`"
    return ACCEPT_EMPTY


def _told(loss: Loss) -> list[str]:
    lines = [f"damaged: {loss.path}, byte {loss.position}, record {loss.first_lsn}"]
    if not loss.records:
        return [*lines, f"Given up is everything from record {loss.first_lsn} on; nothing of it can be read any more."]
    counts = ", ".join(f"{count} {kind_name(kind)}" for kind, count in sorted(loss.records.items()))
    lines.append(f"Given up are records {loss.first_lsn} to {loss.last_lsn}; of them can still be read: {counts}")
    lines += loss.texts
    more = sum(loss.records.values()) - len(loss.texts)
    return [*lines, f"and {more:,} more"] if more else lines
