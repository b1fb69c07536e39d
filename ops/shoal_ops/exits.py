"""Exit codes, and how an error is told: one clear line on stderr that names the thing and what to do next.

| code | means |
|---|---|
| 0 | done |
| 1 | a comparison or a check found something |
| 2 | bad arguments |
| 3 | fix the call: name, size, options, a queue that is not there, a file that cannot be read |
| 4 | outcome unknown: nothing answered, or not in time |
| 5 | slow down: a limit is reached |
| 6 | no rights |
| 7 | data is damaged: call an operator |
| 130 | interrupted |
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from shoal_contract.errors import BadCall, Corrupt, NoRights, OutcomeUnknown, ResourceExhausted, ShoalError
from shoal_contract.names import printable

DONE: Final = 0
FOUND: Final = 1
BAD_CALL: Final = 3
UNKNOWN: Final = 4
SLOW_DOWN: Final = 5
NO_RIGHTS: Final = 6
DAMAGED: Final = 7
INTERRUPTED: Final = 130

Result = TypeVar("Result")

# The first that fits.
_ADVICE: tuple[tuple[type[BaseException], int, str], ...] = (
    (BadCall, BAD_CALL, ""),
    (OutcomeUnknown, UNKNOWN, "is the cluster up? shoal status; shoal up starts one here"),
    (ResourceExhausted, SLOW_DOWN, "send less, or raise the limit, and try again"),
    (NoRights, NO_RIGHTS, "ask for rights"),
    (Corrupt, DAMAGED, "keep the files as they are, and see shoal check"),
    (ShoalError, BAD_CALL, ""),
    (OSError, BAD_CALL, ""),
)


@contextmanager
def told() -> Iterator[None]:
    """Ends the process with a line and a code, for the errors that users can do something about."""
    # The same errors reach us; the log of tasks would only say them twice.
    logging.getLogger("shoal_contract.tasks").disabled = True
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (ShoalError, OSError) as error:
        code, advice = next((code, advice) for kind, code, advice in _ADVICE if isinstance(error, kind))
        sys.stderr.write(f"shoal: {printable(str(error))}{f' ({advice})' if advice else ''}\n")
        sys.exit(code)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs `work` to its end; Ctrl-C cancels it. Errors as in `told`."""
    with told():
        import uvloop

        return uvloop.run(work)
