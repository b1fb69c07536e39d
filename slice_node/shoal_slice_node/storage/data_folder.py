"""Names the files and folders in a node's data folder, in one place."""

from __future__ import annotations

from typing import Final

STORE_FOLDER: Final = "store"
JOURNAL_FOLDER: Final = "journal"
OWNER_FILE: Final = "owner"
"""The lock file in the store's folder. It holds the pid of the process that has the store open."""

REPAIR_FOLDER: Final = "repair"
"""Keeps files as they were before an operator's repair, in one folder for each repair."""
