"""Encodes table `transient`: which queues are dropped when nothing consumes them.

transient   queue id   ->  form u8: 1 | LSN u64 of the record that declared or bound the queue last
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from shoal_slice_node.core.rows.forms import check_form

FORM: Final = 1
_TRANSIENT = Struct(">BQ")


def encode_transient(renewed_lsn: int) -> bytes:
    return _TRANSIENT.pack(FORM, renewed_lsn)


def decode_transient(row: bytes) -> int:
    """Returns the LSN of the record that declared or bound the queue last."""
    check_form("transient", row, FORM, _TRANSIENT.size)
    renewed_lsn: int
    _, renewed_lsn = _TRANSIENT.unpack(row)
    return renewed_lsn
