"""What went wrong, as a ShoalError, and the exit code of it.

Errors raised in Spark's Python workers reach the driver as text inside Spark's own; the typed one is found in it again.
Codes are those of the `shoal` command (its help lists them).
"""

from __future__ import annotations

import re

from shoal_contract import errors
from shoal_contract.errors import BadCall, Corrupt, NoRights, OutcomeUnknown, ResourceExhausted, ShoalError

_RAISED = re.compile(r"shoal_contract\.errors\.(\w+): (.*)")
_CODES: tuple[tuple[type[ShoalError], int], ...] = (
    (BadCall, 3),
    (OutcomeUnknown, 4),
    (ResourceExhausted, 5),
    (NoRights, 6),
    (Corrupt, 7),
)


def typed(error: BaseException) -> ShoalError | None:
    """None: none of ours."""
    if isinstance(error, ShoalError):
        return error
    if isinstance(error, OSError):
        return BadCall(str(error))
    raised = _RAISED.findall(str(error))
    if not raised:
        return None
    name, message = raised[-1]
    kind = getattr(errors, name, ShoalError)
    return kind(message.strip()) if isinstance(kind, type) and issubclass(kind, ShoalError) else None


def exit_code(error: ShoalError) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), 3)
