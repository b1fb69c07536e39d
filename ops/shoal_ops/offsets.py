"""Parses which messages of a key are meant, in the words of the command line: OFFSET, or FIRST-LAST."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shoal_contract.arguments import OFFSET
from shoal_contract.errors import Malformed, OutOfRange, TooLarge
from shoal_contract.names import encode_name
from shoal_ops import output
from shoal_ops.arguments import bad_argument
from shoal_ops.limits import OFFSET_RANGES_MAX

if TYPE_CHECKING:
    import shoal

_LAST: Final = OFFSET.within(0, OFFSET.high - 1)
"""An offset that one may be behind: a range is given to the client with the offset behind its last."""
_RANGE = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")


def parse_offsets(key: str, texts: Sequence[str]) -> list[shoal.Done]:
    """Returns the ranges of offsets that texts name. Raises InvalidName, Malformed, OutOfRange, TooLarge."""
    import shoal

    encode_name(key, "key")
    return [shoal.Done(key, *found) for found in _ranges(texts)]


def _ranges(texts: Sequence[str]) -> list[tuple[int, int]]:
    if len(texts) > OFFSET_RANGES_MAX:
        what = f"{len(texts)} offsets and ranges in one command; the limit is {OFFSET_RANGES_MAX}"
        raise TooLarge(what, subject="offsets", limit=OFFSET_RANGES_MAX, value=len(texts))
    return [_range(text) for text in texts]


def _checked(texts: list[str]) -> list[str]:
    with bad_argument():
        _ranges(texts)
    return texts


Offsets = Annotated[
    list[str],
    typer.Argument(metavar="OFFSETS", show_default=False, callback=_checked, help="Each OFFSET, or FIRST-LAST."),
]


def _range(text: str) -> tuple[int, int]:
    """Returns the first offset, and the one behind the last."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise Malformed(f"{output.shown(text)} names no offsets: give OFFSET or FIRST-LAST", subject="offsets")
    first = int(found[1])
    last = int(found[2] or found[1])
    if not 0 < first <= last:
        what = f"{text} holds no offset: the first is at least 1, and the last not below it"
        raise OutOfRange(what, subject="offsets", limit=max(first, 1), value=last)
    return first, _LAST.check(last) + 1
