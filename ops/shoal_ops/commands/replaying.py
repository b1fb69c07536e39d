"""`shoal replay`: drives event files through a cluster, shows the progress and prints the report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from shoal_ops import output
from shoal_ops.consoles import ErrorConsole
from shoal_ops.exits import DONE, FOUND
from shoal_ops.limits import MISMATCHES_SHOWN_MAX, REFRESH_PER_S
from shoal_ops.replay.events import count_events
from shoal_ops.replay.run import Replay, Source
from shoal_ops.replay.tally import ReplayReport
from shoal_runtime.tasks import Tasks


class _Counts(ProgressColumn):
    """Shows the events and deliveries so far."""

    def render(self, task: Task) -> Text:
        deliveries, redeliveries = task.fields.get("deliveries", 0), task.fields.get("redeliveries", 0)
        again = f", {redeliveries:,} redelivered" if redeliveries else ""
        return Text(f"{int(task.completed):,} events, {deliveries:,} deliveries{again}")


@asynccontextmanager
async def shown_progress(replay: Replay, events: int, console: Console) -> AsyncIterator[None]:
    columns = (TextColumn("{task.description}"), BarColumn(), _Counts(), TimeElapsedColumn())
    quiet = not console.is_terminal
    with Progress(
        *columns, console=console, refresh_per_second=REFRESH_PER_S, transient=True, disable=quiet
    ) as progress:
        row = progress.add_task("replay", total=events)

        def update() -> None:
            tally = replay.tally
            progress.update(row, completed=tally.events, deliveries=replay.deliveries, redeliveries=replay.redeliveries)

        async def follow() -> None:
            while True:
                update()
                await asyncio.sleep(1 / REFRESH_PER_S)

        async with Tasks("progress") as tasks:
            tasks.start("draw", follow())
            yield
            update()


async def run_replay(
    files: Sequence[Path], redirector: str, clients: int, publish_after_churn: bool, keep: bool, as_json: bool
) -> int:
    """Replays the files. Returns the exit code."""
    replay = Replay(redirector, [Source(path, publish_after_churn) for path in files], clients, keep)
    events = await asyncio.to_thread(lambda: sum(count_events(path) for path in files))
    async with shown_progress(replay, events, ErrorConsole()):
        report = await replay.run()
    tell(report, as_json)
    return FOUND if report.mismatches else DONE


def tell(report: ReplayReport, as_json: bool, besides: Mapping[str, object] | None = None) -> None:
    """Writes the report to stdout. `besides`: further facts, in JSON only."""
    if as_json:
        output.say_json({**report.as_json(), **(besides or {})})
        return
    names = ("events", "binds", "unbinds", "messages", "deliveries", "mismatches", "redeliveries")
    output.facts({name: getattr(report, name) for name in names} | {"time": f"{report.seconds:.1f} s"})
    for mismatch in report.first_mismatches[:MISMATCHES_SHOWN_MAX]:
        where = f"queue {mismatch.queue or '(any)'}, key {mismatch.key}, offset {mismatch.offset}"
        output.say(f"mismatch: {where}: {mismatch.problem} ({output.count(mismatch.messages, 'message')})")
    hidden = len(report.first_mismatches) - MISMATCHES_SHOWN_MAX
    if hidden > 0:
        output.say(f"... and {output.count(hidden, 'more place')}")
