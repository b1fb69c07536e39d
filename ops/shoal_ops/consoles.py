"""Makes consoles on stderr: for what a command says beside its result."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console

from shoal_runtime.standard_streams import ReaderGone


class ErrorConsole(Console):
    """Writes to stderr. Ends the command as a gone reader of stdout does; rich would end it with 1."""

    def __init__(self, *, highlight: bool = True, soft_wrap: bool = False) -> None:
        super().__init__(stderr=True, highlight=highlight, soft_wrap=soft_wrap)

    def on_broken_pipe(self) -> NoReturn:
        self.quiet = True
        raise ReaderGone
