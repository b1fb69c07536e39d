"""The names of what lies in a node's data folder, once."""

from __future__ import annotations

from typing import Final

STORE_FOLDER: Final = "store"
JOURNAL_FOLDER: Final = "journal"
OWNER_FILE: Final = "owner"
"""In the store's folder: the lock of the process that has it, and its pid."""

REPAIR_FOLDER: Final = "repair"
"""Files as they were before an operator's repair, in a folder for each."""
