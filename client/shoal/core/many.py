"""Answers calls that name one thing or many: in the form asked for, and with one error for all that failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal_contract.errors import ShoalError
from shoal_contract.names import Name


def as_asked(
    names: Name | Iterable[Name], encoded: Mapping[bytes, Name], values: Mapping[bytes, int]
) -> int | dict[Name, int]:
    """Returns the value of the only name, or name -> value if many were given. `encoded`: the names by their bytes."""
    if isinstance(names, str | bytes):
        return values[next(iter(encoded))]
    return {name: values[one] for one, name in encoded.items()}


def raise_failed(
    failed: Mapping[bytes, ShoalError],
    asked: Mapping[bytes, Name],
    done: Mapping[bytes, int],
    what: str,
    things: str = "queues",
) -> None:
    """Raises the error of the first queue or key that failed, in the order in which they were named; of several, with
    `failed` and `done`. `what`: was not done to these `things`, as "dropped"."""
    if not failed:
        return
    errors = {name: failed[one] for one, name in asked.items() if one in failed}
    first = next(iter(errors.values()))
    if len(asked) == 1:
        raise first
    others = f" ({len(errors):,} of {len(asked):,} {things} were not {what}: `failed` of this error has all)"
    error = type(first)(first.message + others, subject=first.subject, limit=first.limit, value=first.value)
    error.failed = errors
    error.done = {name: done.get(one, 0) for one, name in asked.items() if one not in failed}
    raise error
