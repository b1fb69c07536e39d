"""The installed command `shoal`: runs the command line, or says which extra of the package is missing.

It imports only the bare client's libraries, as it must be able to say this where no others are installed.
"""

from __future__ import annotations

import sys

from shoal_ops.exits import BAD_CALL, INTERRUPTED, code_of, tell
from shoal_ops.extras import missing_library
from shoal_runtime.standard_streams import ended_with_its_reader, lead_to_null


def main() -> None:
    try:
        with ended_with_its_reader():
            _run()
    except OSError as error:  # What was left to print could not be written: the disk is full, say.
        try:
            tell(error)
        except OSError:  # As for stdout.
            lead_to_null(2)
        sys.exit(code_of(error))


def _run() -> None:
    try:
        from shoal_ops.cli import main as run_command_line

        run_command_line()
    except ModuleNotFoundError as error:
        sentence = missing_library(error.name or "", "this command")
        if sentence is None:
            raise
        sys.stderr.write(f"shoal: {sentence}\n")
        sys.exit(BAD_CALL)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)  # Ctrl-C while modules were imported.
