"""`shoal repair`: repairs a stopped node's journal, as far as an operator may, when the node does not start."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from shoal_contract.journal_record import LEFT_OUT
from shoal_local.commands import ACCEPT_EMPTY
from shoal_local.record import RECORD
from shoal_ops import output
from shoal_ops.commands.node_folders import one_node
from shoal_ops.exits import DONE, FOUND
from shoal_slice_node.storage.journal_repair import JournalRepair, Loss
from shoal_slice_node.storage.record_text import kind_name, record_text
from shoal_slice_node.storage.stopped_folder import stopped

_IN_PART: Final = (
    "Once it is set aside, what cannot be applied of it is left out, and lost; what can be is done as ever. Add --yes"
    " to do so."
)
_WHOLE: Final = "It is set aside already. This time all of it is left out, and lost. Add --yes to do so."
_SHIFTED: Final = (
    "If what is left out was applied before, then what is behind it in the journal counts on it: queues and keys may"
    " get other numbers, later messages other offsets, and acks may hit other messages, so that some are lost and some"
    " come again. To avoid that, use a version that can apply it."
)


def skip(path: Path, lsn: int, confirmed: bool) -> int:
    """Sets one record aside. Returns the exit code: FOUND where it only prints what would be lost."""
    with stopped(one_node(path)) as store:
        repair = JournalRepair(path, store)
        place = repair.find(lsn)
        output.say(f"record {lsn}: {record_text(place.record)}")
        if place.record.flags & LEFT_OUT:
            output.say("All of it is left out already.")
            return DONE
        if not confirmed:
            output.say(_WHOLE if place.record.flags else _IN_PART)
            output.say(_SHIFTED)
            return FOUND
        kept = repair.set_aside(place)
    output.say(f"Record {lsn} is set aside. The segment as it was is kept in {kept}")
    output.say(f"Next: shoal check {path}, then start the node; it warns of the record at each replay.")
    return DONE


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
