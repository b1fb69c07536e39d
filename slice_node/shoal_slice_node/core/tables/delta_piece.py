"""Defines pieces, in which a frozen delta leaves the broker, a bounded number of rows at a time.

    ("rows",   table, [key, value, key, value, ...])     value b"": delete
    ("add",    table, [group + member, ...])             16 bytes each; the base lacks it
    ("remove", table, [group + member, ...])             16 bytes each; the base has it
    ("trim",   table, [key id, low, new low, ...])       delete rows with low <= first < new low; before its appends
    ("append", table, [key id, first, row, ...])         above every row of its key

Lists hold plain bytes and ints, so that `marshal` carries them. Pieces of one delta may be applied in any order, except
that a trim must come before the appends (and it does).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Piece: TypeAlias = tuple[str, str, list[Any]]

OVERHEAD_BYTES: Final = 180
"""Bytes that CPython keeps for a row besides the row's own: a dict slot (about 75 with spare room), two bytes headers.
"""

ID_BYTES: Final = 8


def rows_piece(table: str, flat: list[bytes]) -> Piece:
    return ("rows", table, flat)
