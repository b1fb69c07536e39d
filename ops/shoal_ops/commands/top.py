"""`shoal top`: shows every slice's figures with rates, drawn again and again; or one sample, or JSON."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, fields

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

import shoal
from shoal_contract.names import printable
from shoal_ops import output
from shoal_ops.exits import DONE, UNKNOWN
from shoal_ops.limits import TOP_DEADLINE_S

RATES = ("binds", "unbinds", "publishes", "deliveries", "acks")
COLUMNS = (
    *("slice", "queues", "keys", "bindings", "kept"),
    *("binds/s", "unbinds/s", "publishes/s", "deliveries/s", "acks/s"),
    *("sessions", "attached", "checkpoint", "lag", "journal", "memory", "disk", "trouble"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """Holds one slice's figures at one moment. `rates`: per second, since the sample before. `problem`: why there are
    no figures."""

    slice: str
    figures: shoal.SliceFigures | None
    rates: dict[str, float]
    problem: str = ""


async def run_top(at: str, interval_s: float, samples: int | None, as_json: bool) -> int:
    """Shows so many samples; with `samples` None, until Ctrl-C. Returns the exit code: UNKNOWN if a slice did not
    answer in the last one."""
    last: list[Sample] = []
    async with shoal.connect(*at.split(","), deadline_s=TOP_DEADLINE_S) as broker:
        taken = _samples(shoal.Admin(broker), interval_s, samples)
        if as_json:
            async for last in taken:
                output.say_json({"slices": [_as_json(one) for one in last]})
        elif samples == 1 or not sys.stdout.isatty():
            async for last in taken:
                _print(last)
        else:
            last = await _draw(taken, at)
    return UNKNOWN if any(one.problem for one in last) else DONE


async def _draw(taken: AsyncIterator[list[Sample]], at: str) -> list[Sample]:
    last: list[Sample] = []
    with Live(screen=True, auto_refresh=False, console=Console(highlight=False)) as live:
        async for last in taken:
            live.update(_table(last, f"{at}: {output.count(len(last), 'slice')} (Ctrl-C ends)"), refresh=True)
    return last


async def _samples(admin: shoal.Admin, interval_s: float, count: int | None) -> AsyncIterator[list[Sample]]:
    """Yields samples, each an interval after the one before. The first also waits one interval, to have rates."""
    before = await _figures(admin)
    number = 0
    while count is None or number < count:
        await asyncio.sleep(interval_s)
        now = await _figures(admin)
        yield [_sample(name, found, before.get(name)) for name, found in now.items()]
        before = now
        number += 1


async def _figures(admin: shoal.Admin) -> dict[str, shoal.SliceFigures | shoal.ShoalError]:
    names = sorted(set(await admin.partitions()))

    async def ask(name: str) -> shoal.SliceFigures | shoal.ShoalError:
        try:
            return await admin.figures(name)
        except shoal.ShoalError as error:
            return error

    return dict(zip(names, await asyncio.gather(*map(ask, names)), strict=True))


def _sample(
    name: str, found: shoal.SliceFigures | shoal.ShoalError, before: shoal.SliceFigures | shoal.ShoalError | None
) -> Sample:
    if isinstance(found, shoal.ShoalError):
        return Sample(name, None, {}, str(found))
    counted = before.counters if isinstance(before, shoal.SliceFigures) and before.epoch == found.epoch else None
    since_ms = before.time_ms if isinstance(before, shoal.SliceFigures) else 0
    seconds = max(0.001, (found.time_ms - since_ms) / 1000)
    rates = {
        name: 0.0 if counted is None else round((getattr(found.counters, name) - getattr(counted, name)) / seconds, 1)
        for name in (field.name for field in fields(shoal.Counters))
    }
    return Sample(name, found, rates)


def _as_json(one: Sample) -> dict[str, object]:
    if one.figures is None:
        return {"slice": one.slice, "problem": one.problem}
    return asdict(one.figures) | {"rates_per_s": one.rates}


def _print(samples: Sequence[Sample]) -> None:
    output.table(COLUMNS, [_row(one) for one in samples if one.figures is not None])
    for one in samples:
        if one.problem:
            output.say(f"{one.slice}: {one.problem}")


def _row(one: Sample) -> Sequence[object]:
    found = one.figures
    assert found is not None
    return (
        *(one.slice, found.queues, found.keys, found.bindings, found.messages),
        *(one.rates[name] for name in RATES),
        *(found.sessions, found.attached_queues, f"{found.checkpoint.age_s:.0f} s ago", found.checkpoint.lag_records),
        *(output.size(found.journal.bytes), output.size(found.memory.resident_bytes), output.size(found.disk_bytes)),
        found.trouble,
    )


def _table(samples: Sequence[Sample], title: str) -> Table:
    # What a slice says that does not answer is too long for a column.
    problems = "\n".join(f"{one.slice}: {printable(one.problem)}" for one in samples if one.problem)
    shown = Table(
        title=title, title_justify="left", caption=problems and Text(problems, style="red"), caption_justify="left",
        header_style="bold", box=None, pad_edge=False,
    )  # fmt: skip
    for column in COLUMNS:
        shown.add_column(column, justify="left" if column == "slice" else "right")
    for one in samples:
        if one.figures is None:
            shown.add_row(one.slice, Text("silent", style="red"))
        else:
            *figures, trouble = (printable(output.text(cell)) for cell in _row(one))
            shown.add_row(*figures, Text(trouble, style="red"))
    if len(samples) > 1:
        shown.add_section()
        shown.add_row(*map(output.text, _total(samples)), style="bold")
    return shown


def _total(samples: Sequence[Sample]) -> Sequence[object]:
    known = [one.figures for one in samples if one.figures is not None]
    return (
        *("all", "", sum(one.keys for one in known), sum(one.bindings for one in known)),
        sum(one.messages for one in known),
        *(sum(one.rates.get(name, 0.0) for one in samples) for name in RATES),
        *("", "", "", sum(one.checkpoint.lag_records for one in known)),
        *(output.size(sum(one.journal.bytes for one in known)),),
        *(output.size(sum(one.memory.resident_bytes for one in known)),),
        *(output.size(sum(one.disk_bytes for one in known)),),
        sum(bool(one.trouble) for one in known) or "",
    )
