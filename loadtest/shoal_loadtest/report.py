"""Shows the results of a bench, as a table for people and as one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shoal_loadtest.machine import Machine


@dataclass(frozen=True)
class Result:
    """Holds a bench's result. `figures` are the published fields of issue and JSON; `details` explain them to people,
    row by row."""

    bench: str
    command: str
    figures: Mapping[str, float]
    machine: Machine
    details: Sequence[tuple[str, str]] = field(default=())


def say(sentence: str) -> None:
    """Writes progress to stderr: stdout is kept for the report."""
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


def as_text(result: Result) -> str:
    rows = [(name, _shown(value)) for name, value in result.figures.items()]
    rows += [("", ""), *result.details]
    rows += [("machine: fdatasync of 4 KiB", f"{result.machine.syncs_per_s:,.0f}/s")]
    rows += [("machine: LMDB put, random 16+8 B", f"{result.machine.puts_per_s:,.0f}/s")]
    width = max(len(name) for name, _ in rows)
    lines = [f"{result.bench}: {result.command}", *(f"  {name:<{width}}  {value}".rstrip() for name, value in rows)]
    return "\n".join(lines) + "\n"


def as_json(results: Sequence[Result]) -> str:
    """Returns results as JSON. One result: its fields at the top. Several: an object for each bench."""
    objects = {result.bench: _object(result) for result in results}
    shown = objects if len(results) > 1 else next(iter(objects.values()))
    return json.dumps(shown, indent=2) + "\n"


def _object(result: Result) -> dict[str, object]:
    machine = {"syncs_per_s": round(result.machine.syncs_per_s), "puts_per_s": round(result.machine.puts_per_s)}
    figures = {name: round(value, 3) for name, value in result.figures.items()}
    return {
        "bench": result.bench,
        **figures,
        "command": result.command,
        "machine": machine,
        "details": dict(result.details),
    }


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}"
