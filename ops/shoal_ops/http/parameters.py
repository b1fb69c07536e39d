"""Parts of paths and queries that several operations take."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query

from shoal_contract.errors import InvalidName
from shoal_ops.http import limits, names
from shoal_ops.http.gateway import Gateway, of

# Dependencies that are not async would each take a turn in a thread.
TheGateway = Annotated[Gateway, Depends(of)]

_LENGTHS = {"min_length": 1, "max_length": limits.NAME_CHARACTERS_MAX}


async def _queue(
    queue: Annotated[
        str,
        Path(
            min_length=1,
            max_length=limits.NAME_CHARACTERS_MAX,
            description="A queue's name, percent-encoded; it may hold any bytes.",
            examples=["inbox-anna"],
        ),
    ],
) -> bytes:
    return names.decoded(queue, "queue")


async def _key(
    key: Annotated[
        str,
        Path(
            min_length=1,
            max_length=limits.NAME_CHARACTERS_MAX,
            description="A key's name, percent-encoded; it may hold any bytes.",
            examples=["group-7"],
        ),
    ],
) -> bytes:
    return names.decoded(key, "key")


QueueName = Annotated[bytes, Depends(_queue)]
KeyName = Annotated[bytes, Depends(_key)]
After = Annotated[
    str, Query(max_length=4 * limits.NAME_CHARACTERS_MAX, description="`next` of the page before", examples=[""])
]
Limit = Annotated[int, Query(ge=1, le=limits.PAGE_MAX, description="names in the page", examples=[100])]
Prefix = Annotated[
    str,
    Query(
        max_length=limits.NAME_CHARACTERS_MAX,
        description="what names begin with, percent-encoded: any bytes",
        examples=["inbox-"],
    ),
]


def prefix_bytes(query: bytes) -> bytes:
    """The query's prefix as bytes: it need not be UTF-8. Raises InvalidName."""
    found = names.from_query(query, "prefix")
    if len(found) > 1:
        raise InvalidName("give one prefix", subject="prefix")
    return found[0] if found else b""
