"""`shoal bench`: runs the load test as a process of its own, and shows what it does and how long it has run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from shoal_ops.consoles import ErrorConsole
from shoal_ops.extras import require

COMMAND = ("-m", "shoal_loadtest")


async def run_bench(arguments: Sequence[str]) -> int:
    """Returns the load test's exit code. Without a terminal, its lines pass unchanged. Raises BadCall if a library that
    it needs is not installed."""
    require("shoal bench", "psutil")
    if not sys.stderr.isatty():
        return await _wait(await asyncio.create_subprocess_exec(sys.executable, *COMMAND, *arguments))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *COMMAND, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=ErrorConsole(highlight=False), transient=True) as progress:
        row = progress.add_task("starting", total=None)

        async def follow(stream: asyncio.StreamReader) -> None:
            while line := (await stream.readline()).decode(errors="replace").rstrip():
                progress.console.print(line, markup=False, soft_wrap=True)
                progress.update(row, description=line[:60])

        (result, _), code = await asyncio.gather(
            asyncio.gather(process.stdout.read(), follow(process.stderr)), _wait(process)
        )
    sys.stdout.buffer.write(result)
    sys.stdout.flush()
    return code


async def _wait(process: asyncio.subprocess.Process) -> int:
    """Returns the child's exit code. Ctrl-C reaches the child too, and it ends by itself."""
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
