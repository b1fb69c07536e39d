"""`shoal sweep`: finds and drops what interrupted drops left behind."""

from __future__ import annotations

import shoal
from shoal_ops import output
from shoal_ops.commands.verbs import connect
from shoal_ops.exits import DONE, UNKNOWN
from shoal_ops.sweep.sweeper import Sweeper


async def sweep(at: str, pause_s: float, dry_run: bool, unknown_too: bool, as_json: bool) -> int:
    """Sweeps once. Returns the exit code: UNKNOWN if a slice was not looked at."""
    found: list[shoal.Part] = []
    async with connect(at) as broker:
        sweeper = Sweeper(
            shoal.Parts(broker), pause_s=pause_s, dropping=not dry_run, unknown_too=unknown_too, on_drop=found.append
        )
        await sweeper.once()
    figures = sweeper.figures
    if as_json:
        parts = [{"slice": part.slice, "queue": output.plain(part.queue)} for part in found]
        output.say_json(
            {"looked_at": figures.looked, "dropped": 0 if dry_run else figures.dropped, "left_behind": parts}
            | {"doubtful": figures.doubtful, "unknown": figures.unknown, "problems": figures.problems}
        )
    else:
        _tell(sweeper, found, dry_run, unknown_too)
    return UNKNOWN if figures.problems else DONE


def _tell(sweeper: Sweeper, found: list[shoal.Part], dry_run: bool, unknown_too: bool) -> None:
    figures = sweeper.figures
    for part in found:
        output.say(
            f"slice {part.slice}: queue {output.shown(part.queue)} {'is left' if dry_run else 'was left: dropped'}"
        )
    done = "; nothing was dropped" if dry_run else ", and dropped" if found else ""
    output.say(f"{output.count(figures.looked, 'part')} looked at, {len(found):,} left behind by drops{done}")
    if figures.doubtful:
        doubtful = output.count(figures.doubtful, "part")
        output.say(
            f"{doubtful} of bulk loads belong to no queue that their home knows, cannot be told from queues declared"
            " just now, and are left: `shoal drop QUEUE` ends one"
        )
    if figures.unknown and not unknown_too:
        output.say(
            f"{output.count(figures.unknown, 'part')} belong to no queue that their home knows, and are left: each was"
            " dropped, or its home began with empty or old data and lost it. If no slice was ever started with"
            " --accept-empty, `shoal sweep --unknown-too` drops them, with their messages"
        )
    for slice_name, problem in figures.problems.items():
        output.remark(f"slice {slice_name} was not looked at: {problem}")
