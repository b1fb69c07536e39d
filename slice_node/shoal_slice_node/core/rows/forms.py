"""The form byte of a row: which of its table's layouts it has. STORAGE.md says how formats grow."""

from __future__ import annotations


def check_form(table: str, row: bytes, known: int, least_bytes: int) -> None:
    """Raises ValueError for a row with a layout that this version does not know, or without all of its header."""
    if len(row) < least_bytes:
        raise ValueError(f"a row of table {table} has {len(row)} bytes; form {known} has at least {least_bytes}")
    if row[0] != known:
        raise unknown_form(table, row, str(known))


def unknown_form(table: str, row: bytes, known: str) -> ValueError:
    """Returns the error for a row with a layout that this version does not know."""
    return ValueError(f"a row of table {table} has form {row[0]}; this version reads form {known}")
