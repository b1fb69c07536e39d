"""Checks the form byte of a row: it says which of its table's layouts a row has. STORAGE.md says how layouts
may change."""

from __future__ import annotations


def check_form(table: str, form: int, known: int) -> None:
    """Raises ValueError for a layout that this version does not know."""
    if form != known:
        raise ValueError(f"a row of table {table} has form {form}; this version reads form {known}")
