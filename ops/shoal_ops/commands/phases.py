"""Shows the progress of work that goes through phases, as one bar on stderr; without a terminal it shows nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from shoal_ops.consoles import ErrorConsole
from shoal_ops.limits import REFRESH_PER_S

Told = Callable[[str, int, int], None]
"""Takes the phase, the steps done, and their total."""


@contextmanager
def shown_phases() -> Iterator[Callable[[str], Told]]:
    """Yields a function that makes a `Told` for each thing worked on, from its name. The bar vanishes at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = ErrorConsole()
    quiet = not console.is_terminal
    with Progress(
        *columns, console=console, refresh_per_second=REFRESH_PER_S, transient=True, disable=quiet
    ) as progress:
        row = progress.add_task("", total=None)

        def show(name: str) -> Told:
            def told(phase: str, done: int, total: int) -> None:
                progress.update(row, description=f"{name}: {phase}", completed=done, total=total)

            return told

        yield show
