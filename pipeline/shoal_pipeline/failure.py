"""Translates errors into a ShoalError of one line, and gives its exit code.

Errors raised in Spark's Python workers reach the driver as text inside Spark's own errors; the typed error is found
again in that text. What Spark itself refuses (a file that is not Parquet, a folder that cannot be written) is found in
its text too. Codes are those of the `shoal` command (its help lists them).
"""

from __future__ import annotations

import re

from shoal_contract import errors
from shoal_contract.errors import BadCall, Corrupt, NoRights, OutcomeUnknown, ResourceExhausted, ShoalError

_RAISED = re.compile(r"shoal_contract\.errors\.(\w+): (.*)")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s+(.*?)\s*(?:SQLSTATE: \w+|$)", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: [\w.$]+(?:Exception|Error): (.*)$", re.MULTILINE)
_IN_TASK = re.compile(r"most recent failure: .*?: ([\w.$]+(?:Exception|Error): .*)$", re.MULTILINE)
_SPARKS = ("pyspark.", "py4j.")
"""The modules of errors that Spark raises in the driver. Its classes are not imported: help must be quick."""

_CODES: tuple[tuple[type[ShoalError], int], ...] = (
    (BadCall, 3),
    (OutcomeUnknown, 4),
    (ResourceExhausted, 5),
    (NoRights, 6),
    (Corrupt, 7),
)


def typed(error: BaseException) -> ShoalError | None:
    """Returns the error as a ShoalError; None where it is a bug, whose traceback must be seen."""
    if isinstance(error, ShoalError):
        return error
    if isinstance(error, OSError):
        return BadCall(str(error))
    text = str(error)
    raised = _RAISED.findall(text)
    if not raised:
        return _of_spark(text) if type(error).__module__.startswith(_SPARKS) else None
    name, message = raised[-1]
    kind = getattr(errors, name, ShoalError)
    return kind(message.strip()) if isinstance(kind, type) and issubclass(kind, ShoalError) else None


def exit_code(error: ShoalError) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), 3)


def _of_spark(text: str) -> ShoalError | None:
    """Returns what Spark says is wrong with its input, output or query; None for an error inside a Python worker."""
    if "Traceback (most recent call last)" in text:
        return None
    condition, cause = _CONDITION.search(text), _CAUSE.findall(text) or _IN_TASK.findall(text)
    said = condition[2] if condition else ""
    if not said and not cause:
        return None
    return BadCall(f"Spark: {': '.join(one.strip() for one in (said, *cause[-1:]) if one.strip())}")
