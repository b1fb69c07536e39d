"""The form byte of a row: which of its table's layouts it has. STORAGE.md says how layouts may change."""

from __future__ import annotations


def check_form(table: str, form: int, known: int) -> None:
    """Raises ValueError for a layout that this version does not know."""
    if form != known:
        raise ValueError(f"a row of table {table} has form {form}; this version reads form {known}")
