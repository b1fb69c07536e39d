"""Exit codes, and how an error is printed: one clear line on stderr that names the thing and what to do next.

| code | means |
|---|---|
| 0 | done |
| 1 | a comparison or a check found something |
| 2 | bad arguments: one is missing or unknown, cannot be read, or its number is out of its range |
| 3 | fix the call: name, size, options that do not go together, a queue that is not there, a file that cannot be read |
| 4 | outcome unknown: nothing answered, or not in time |
| 5 | slow down: a limit is reached |
| 6 | no rights |
| 7 | data is damaged: call an operator |
| 130 | interrupted |
| 141 | nothing reads the output any more, as behind `head`; no word is said (shoal_runtime/standard_streams.py) |
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from shoal_contract.errors import Corrupt, NoRights, OutcomeUnknown, ResourceExhausted, ShoalError
from shoal_contract.names import printable
from shoal_runtime.standard_streams import READER_GONE as READER_GONE

DONE: Final = 0
FOUND: Final = 1
BAD_CALL: Final = 3
UNKNOWN: Final = 4
SLOW_DOWN: Final = 5
NO_RIGHTS: Final = 6
DAMAGED: Final = 7
INTERRUPTED: Final = 130

Result = TypeVar("Result")

CLUSTER_AWAY: Final = "is the cluster up? shoal status tells; shoal up starts one here"
"""The hint for a cluster that did not answer."""

MAKE_ROOM: Final = "make room there, and try again; shoal status shows each slice's trouble"
"""The hint for a slice whose disk is full: to send less does not help, and there is no limit to raise."""

_FULL_DISK: Final = ("disk bytes", "checkpoint")
"""Subjects of the errors of a slice that takes no changes until there is room for its journal, or its checkpoints."""

SLICE_AWAY: Final = "shoal status tells which slices answer"
"""The hint for a slice that did not answer, which the error names: the cluster is up."""
_NAMES_SLICE: Final = re.compile(r"\bslice [A-Za-z0-9]")

_HTTP_PORT: Final = "answers HTTP, not gRPC"
"""An error with these words says itself what to do. The hint for a cluster that is down would point to another
cause."""

_CODES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (OutcomeUnknown, UNKNOWN),
    (ResourceExhausted, SLOW_DOWN),
    (NoRights, NO_RIGHTS),
    (Corrupt, DAMAGED),
    (ShoalError, BAD_CALL),
    (OSError, BAD_CALL),
)
"""The first kind that fits gives the code."""

_HINTS: Final[dict[int, str]] = {
    SLOW_DOWN: "send less, or raise the limit, and try again",
    NO_RIGHTS: "ask for rights",
    DAMAGED: "keep the files as they are, and run shoal check on the node's folder",
}

OFFLINE: Final = {DAMAGED: "keep the files as they are"}
"""The hints of commands that look into files themselves: `shoal check` is no advice there."""

SERVING: Final = {UNKNOWN: "", SLOW_DOWN: "", NO_RIGHTS: ""}
"""The hints of commands that start servers here: their errors say what to do, and do not come from a call to a
cluster."""


def code_of(error: BaseException) -> int:
    """Returns the exit code of an error that users can do something about."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def sentence_of(error: BaseException, hints: Mapping[int, str]) -> str:
    """Returns the error and what to do next, as one printable line. `hints`: by exit code; "" for no hint."""
    text = _system_error(error) if isinstance(error, OSError) and not isinstance(error, ShoalError) else str(error)
    hint = "" if _HTTP_PORT in text else hints.get(code_of(error), "")
    if hint and isinstance(error, ResourceExhausted) and error.subject in _FULL_DISK:
        hint = MAKE_ROOM
    if hint == CLUSTER_AWAY and _NAMES_SLICE.search(text):
        hint = SLICE_AWAY
    return printable(f"{text} ({hint})" if hint else text)


def _system_error(error: OSError) -> str:
    """Returns an error of the system as a sentence: the file first, where it is known, then the reason."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


@contextmanager
def told(hints: Mapping[int, str] | None = None) -> Iterator[None]:
    """Ends the process with a line and a code, for the errors that users can do something about.

    `hints`: by exit code, in place of the usual hint; "" for errors that say themselves what to do.
    """
    log = logging.getLogger("shoal_runtime.tasks")
    before = log.disabled
    log.disabled = True  # The same errors arrive here; the log of tasks would only print them twice.
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (ShoalError, OSError) as error:
        tell(error, hints)
        sys.exit(code_of(error))
    finally:
        log.disabled = before


def tell(error: BaseException, hints: Mapping[int, str] | None = None) -> None:
    """Writes one line about an error to stderr, for a command that goes on."""
    sys.stderr.write(f"shoal: {sentence_of(error, _HINTS | dict(hints or {}))}\n")


def run(work: Coroutine[Any, Any, Result], hints: Mapping[int, str] | None = None) -> Result:
    """Runs `work` to its end; Ctrl-C cancels it. Errors end the process as in `told`. An unknown outcome gets the hint
    CLUSTER_AWAY, unless `hints` has another."""
    with told({UNKNOWN: CLUSTER_AWAY} | dict(hints or {})):
        try:
            import uvloop

            from shoal_runtime.loops import Loop
        except ModuleNotFoundError:
            work.close()
            raise
        return uvloop.run(work, loop_factory=Loop)
