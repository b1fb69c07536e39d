"""Encodes the options of a queue, a part of its row of table `queue`.

options   b"", where all are left out; else form u8: 1 | expires_after_s u32
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from shoal_contract.options import DURABLE, QueueOptions
from shoal_slice_node.core.limits import OPTIONS_KEPT_MAX
from shoal_slice_node.core.rows.forms import check_form

FORM: Final = 1
_OPTIONS = Struct(">BI")


@lru_cache(OPTIONS_KEPT_MAX)
def encode_options(options: QueueOptions) -> bytes:
    """Returns the options' bytes, up to 255."""
    return b"" if options == DURABLE else _OPTIONS.pack(FORM, options.expires_after_s)


@lru_cache(OPTIONS_KEPT_MAX)
def decode_options(data: bytes) -> QueueOptions:
    """Returns the options. Raises ValueError for a form that this version does not know."""
    if not data:
        return DURABLE
    check_form("queue", data, FORM, _OPTIONS.size)
    _, expires_after_s = _OPTIONS.unpack(data)
    return QueueOptions(expires_after_s)
