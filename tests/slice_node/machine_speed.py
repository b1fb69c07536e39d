"""How fast this machine is now, so that bounds on processor time hold on slow ones and bite on fast ones."""

from __future__ import annotations

import struct
import time

REFERENCE_S = 0.010
"""What `_loop` takes on the machine that the bounds were set on."""
_ROW = struct.Struct(">QQI")


def slowness() -> float:
    """Returns how many times longer than on the reference machine Python takes, at least 1."""
    return max(1.0, min(_loop() for _ in range(3)) / REFERENCE_S)


def _loop() -> float:
    """Some dict, bytes and struct work, as the broker's is. Returns its processor time in seconds."""
    began = time.thread_time()
    rows = {number.to_bytes(8, "big"): _ROW.pack(number, 2 * number, number & 7) for number in range(20_000)}
    sum(_ROW.unpack(row)[1] for row in rows.values())
    return time.thread_time() - began
