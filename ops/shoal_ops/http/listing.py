"""Makes the answer that is a page of a list: in steps, as a thousand names take 20 ms and more, and others wait.

Not here: which names there are (the client library), and how many pages are made at a time (takes.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from starlette.responses import Response

from shoal_ops.http import limits

Item = TypeVar("Item")


async def answer(what: str, items: Sequence[Item], shown: Callable[[Item], Mapping[str, Any]], after: str) -> Response:
    """Returns `{WHAT: [...], "next": AFTER}`, with each item as `shown` shows it."""
    pieces = []
    for start in range(0, len(items), limits.LISTED_IN_STEP):
        step = [shown(item) for item in items[start : start + limits.LISTED_IN_STEP]]
        pieces.append(json.dumps(step, ensure_ascii=False, separators=(",", ":"))[1:-1].encode())
        await asyncio.sleep(0)
    head, tail = f'{{"{what}":['.encode(), f'],"next":{json.dumps(after)}}}'.encode()
    return Response(head + b",".join(pieces) + tail, media_type="application/json")
