"""Encodes table `history`: the keys that keep messages for a time, which must be looked at though nothing happens.

history   key id   ->  form u8: 1
"""

from __future__ import annotations

from typing import Final

ROW: Final = b"\x01"
