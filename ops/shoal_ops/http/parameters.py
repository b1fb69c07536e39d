"""Parts of paths and queries that several operations take."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, Header, Path, Query, Request

from shoal_contract.arguments import PAGE_ITEMS
from shoal_contract.errors import InvalidName, Malformed
from shoal_contract.limits import NAME_BYTES_MAX
from shoal_ops.http import limits, names
from shoal_ops.http.gateway import Gateway, of
from shoal_runtime.http import query

# FastAPI would run each dependency that is not async in a thread.
TheGateway = Annotated[Gateway, Depends(of)]


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=NAME_BYTES_MAX,
        description="A repeat of this request with the same key stores nothing and gets the first answer, for a day.",
        examples=["order-4711"],
    ),
]


async def _refuse_idempotency_key(request: Request) -> None:
    """Refuses the header where a repeat would be done again all the same. Raises Malformed."""
    if "idempotency-key" in request.headers:
        raise Malformed(
            "Idempotency-Key is for publishes to one key: a repeat of this request would be done again all the same."
            " Leave it out",
            subject="idempotency-key",
        )


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


async def _prefix(
    request: Request,
    prefix: Annotated[
        str,
        Query(
            max_length=limits.NAME_CHARACTERS_MAX,
            description="what names begin with, percent-encoded: any bytes",
            examples=["inbox-"],
        ),
    ] = "",
) -> bytes:
    """Returns the bytes that names must begin with. The parameter `prefix` serves only its bounds and OpenAPI: it is
    text, while a prefix need not be UTF-8. Raises InvalidName."""
    found = query.values(request.scope["query_string"], "prefix")
    if len(found) > 1:
        raise InvalidName("give one prefix", subject="prefix")
    return found[0] if found else b""


async def only_known_queries(request: Request) -> None:
    """Refuses query parameters that the operation does not have, just as unknown fields of bodies are refused. Raises
    Malformed."""
    route = getattr(request.scope["route"], "path", "")
    query.check_names(
        request.scope["query_string"], request.app.state.queries.get((request.method, route), frozenset())
    )


def known_queries(openapi: dict[str, Any]) -> dict[tuple[str, str], frozenset[str]]:
    """Returns the names of query parameters by method and route, from the OpenAPI schema."""
    return {
        (method.upper(), path): frozenset(
            one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"
        )
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    }


NO_IDEMPOTENCY_KEY: Final = [Depends(_refuse_idempotency_key)]
"""What a route has among its dependencies if it takes no Idempotency-Key, and is not to seem to."""

QueueName = Annotated[bytes, Depends(_queue)]
KeyName = Annotated[bytes, Depends(_key)]
After = Annotated[
    str, Query(max_length=4 * limits.NAME_CHARACTERS_MAX, description="`next` of the page before", examples=[""])
]
Limit = Annotated[int, Query(ge=PAGE_ITEMS.low, le=PAGE_ITEMS.high, description="names in the page", examples=[100])]
Prefix = Annotated[bytes, Depends(_prefix)]
