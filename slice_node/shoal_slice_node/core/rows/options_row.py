"""Encodes the options of a queue, a part of its row of table `queue`.

options   b"", where all are left out
          form u8: 1 | expires_after_s u32, where the others are left out
          form u8: 2 | expires_after_s u32 | ack_timeout_ms u32 | max_deliveries u32 | dead_letter, up to the end
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from shoal_contract.limits import DEAD_LETTER_BYTES_MAX
from shoal_contract.options import DURABLE, QueueOptions
from shoal_slice_node.core.limits import OPTIONS_KEPT_MAX
from shoal_slice_node.core.rows.forms import check_form

FORM: Final = 1
FORM_DELIVERIES: Final = 2
_OPTIONS = Struct(">BI")
_DELIVERIES = Struct(">BIII")

assert _DELIVERIES.size + DEAD_LETTER_BYTES_MAX <= 255


@lru_cache(OPTIONS_KEPT_MAX)
def encode_options(options: QueueOptions) -> bytes:
    """Returns the options' bytes, up to 255."""
    if options == DURABLE:
        return b""
    expires_after_s, dead_letter = options.expires_after_s, options.dead_letter
    assert isinstance(dead_letter, bytes)
    if not (options.ack_timeout_ms or options.max_deliveries):
        return _OPTIONS.pack(FORM, expires_after_s)
    head = _DELIVERIES.pack(FORM_DELIVERIES, expires_after_s, options.ack_timeout_ms, options.max_deliveries)
    return head + dead_letter


@lru_cache(OPTIONS_KEPT_MAX)
def decode_options(data: bytes) -> QueueOptions:
    """Returns the options. Raises ValueError for a form that this version does not know."""
    if not data:
        return DURABLE
    if data[0] == FORM_DELIVERIES:
        check_form("queue", data, FORM_DELIVERIES, _DELIVERIES.size)
        _, expires_after_s, ack_timeout_ms, max_deliveries = _DELIVERIES.unpack_from(data)
        return QueueOptions(expires_after_s, ack_timeout_ms, max_deliveries, data[_DELIVERIES.size :])
    check_form("queue", data, FORM, _OPTIONS.size)
    _, expires_after_s = _OPTIONS.unpack(data)
    return QueueOptions(expires_after_s)
