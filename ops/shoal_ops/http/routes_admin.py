"""Shows administrators the cluster, slices, partitions and places; queues and keys by prefix, members, bindings."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

import shoal
from shoal_contract.errors import Malformed, OutOfRange, TooLarge
from shoal_contract.names import Name, check_name, encode_name, show
from shoal_ops.http import glance, limits, listing, models, models_admin, names
from shoal_ops.http.callers import while_wanted
from shoal_ops.http.parameters import After, KeyName, Limit, Prefix, QueueName, TheGateway
from shoal_runtime.http import problem, query

router = APIRouter(tags=["administration"])


@router.get("/v1/cluster", response_model=models_admin.Cluster)
async def cluster(gateway: TheGateway) -> models_admin.Cluster:
    """Shows the map's version, the slices with their nodes, and whether each answers."""
    return glance.cluster(await gateway.sampler.newest())


@router.get("/v1/overview", response_model=models_admin.Overview)
async def overview(
    gateway: TheGateway,
    samples: Annotated[
        int, Query(ge=1, le=limits.SAMPLES_MAX, description="how much history, newest last", examples=[2])
    ] = limits.SAMPLES_MAX,
) -> models_admin.Overview:
    """Returns what the page shows: every slice's figures and rates, with five minutes of history."""
    await gateway.sampler.newest()
    return glance.overview(list(gateway.sampler.samples)[-samples:])


@router.get("/v1/partitions", response_model=models_admin.Partitions)
async def partitions(gateway: TheGateway) -> models_admin.Partitions:
    """Lists which slice owns which partitions."""
    owners = await gateway.admin.partitions()
    runs = []
    for owner, run in groupby(range(len(owners)), key=owners.__getitem__):
        numbers = list(run)
        runs.append(models_admin.PartitionRun(first=numbers[0], last=numbers[-1], slice=owner))
    return models_admin.Partitions(partitions=len(owners), runs=runs)


@router.get(
    "/v1/slices/{slice}",
    response_model=shoal.SliceFigures,
    responses={200: {"content": {"application/json": {"example": models_admin.FIGURES_EXAMPLE}}}},
)
async def slice_figures(
    gateway: TheGateway,
    slice_name: Annotated[str, Path(alias="slice", min_length=1, max_length=255, examples=["s01"])],
) -> Any:
    """Shows all figures of a slice: what it holds, journal, checkpoint, memory, counters since its node leads."""
    name = names.decoded(slice_name, "slice").decode("utf-8", "replace")
    try:
        return JSONResponse(asdict(await gateway.admin.figures(name)))
    except OutOfRange as error:
        return problem.answer(error, 404)


@router.get("/v1/locate", response_model=models_admin.Places, response_model_exclude_none=True)
async def locate(
    request: Request,
    gateway: TheGateway,
    key: Annotated[
        list[str], Query(min_length=1, description="percent-encoded; repeated for more keys", examples=[["group-7"]])
    ],
) -> models_admin.Places:
    """Says which partition a key belongs to, and which slice owns it."""
    wanted = query.values(request.scope["query_string"], "key")
    if len(wanted) > limits.LOCATE_KEYS_MAX:
        raise TooLarge(
            f"keys to locate: {len(wanted)}; the limit is {limits.LOCATE_KEYS_MAX}",
            subject="keys",
            limit=limits.LOCATE_KEYS_MAX,
            value=len(wanted),
        )
    found = []
    for name in wanted:
        check_name(name, "key")
        partition, owner = await gateway.place_of(name)
        found.append(models_admin.Place(**names.fields("key", name), partition=partition, slice=owner))
    return models_admin.Places(keys=found)


@router.get("/v1/queues", response_model=models_admin.QueuePage, response_model_exclude_none=True)
async def list_queues(
    request: Request, gateway: TheGateway, prefix: Prefix, after: After = "", limit: Limit = limits.PAGE_DEFAULT
) -> Response:
    """Lists queues by prefix, in order of their bytes."""

    async def look() -> Response:
        async with gateway.lists.place(show(prefix)):
            found = await gateway.admin.queues(prefix, _after(after), limit)
            return await listing.answer("queues", found.items, _queue, found.next)

    return await while_wanted(request, look())


@router.get("/v1/keys", response_model=models_admin.KeyPage, response_model_exclude_none=True)
async def list_keys(
    request: Request, gateway: TheGateway, prefix: Prefix, after: After = "", limit: Limit = limits.PAGE_DEFAULT
) -> Response:
    """Lists keys by prefix, in order of their bytes, with how many queues are bound to each."""

    async def look() -> Response:
        async with gateway.lists.place(show(prefix)):
            found = await gateway.admin.keys(prefix, _after(after), limit)
            return await listing.answer("keys", found.items, _key, found.next)

    return await while_wanted(request, look())


@router.get("/v1/keys/{key}", response_model=models.Key, response_model_exclude_none=True)
async def describe_key(request: Request, gateway: TheGateway, key: KeyName) -> models.Key:
    """Describes a key: its offsets, how many queues are bound, its partition and slice. For a key that keeps nothing,
    `exists` is false."""
    found = await while_wanted(request, gateway.broker.describe_key(key))
    partition, owner = await gateway.place_of(key)
    return models.Key(
        **names.fields("key", key),
        exists=found.exists,
        head=found.head,
        low=found.low,
        queues=found.queues,
        body_bytes=found.body_bytes,
        partition=partition,
        slice=owner,
        options=models.KeyOptions.of(found.options),
    )


@router.get("/v1/keys/{key}/members", response_model=models_admin.QueuePage, response_model_exclude_none=True)
async def list_members(
    request: Request, gateway: TheGateway, key: KeyName, after: After = "", limit: Limit = limits.PAGE_DEFAULT
) -> Response:
    """Lists the queues bound to a key."""

    async def look() -> Response:
        async with gateway.lists.place(show(key)):
            found = await gateway.admin.members(key, _after(after), limit)
            return await listing.answer("queues", found.items, _queue, found.next)

    return await while_wanted(request, look())


@router.get("/v1/queues/{queue}/bindings", response_model=models_admin.BindingPage, response_model_exclude_none=True)
async def list_bindings(
    request: Request, gateway: TheGateway, queue: QueueName, after: After = "", limit: Limit = limits.PAGE_DEFAULT
) -> Response:
    """Lists a queue's keys, each with its offsets, backlog, how much is unacked, and whether it gives no more."""

    async def look() -> Response:
        async with gateway.lists.place(show(queue)):
            found = await gateway.admin.bindings(queue, _after(after), limit)
            return await listing.answer("bindings", found.items, _binding, found.next)

    return await while_wanted(request, look())


def _after(after: str) -> str:
    if not after.isascii() or not after.isprintable():
        raise Malformed("after is not the `next` of a page", subject="after")
    return after


def _queue(name: Name) -> dict[str, str]:
    return _named("queue", name)


def _key(one: shoal.KeyEntry) -> dict[str, Any]:
    return {**_named("key", one.key), "queues": one.queues}


def _binding(one: shoal.BindingEntry) -> dict[str, Any]:
    return {
        **_named("key", one.key),
        "slice": one.slice,
        "start": one.start,
        "cursor": one.cursor,
        "end": one.end,
        "head": one.head,
        "messages": one.messages,
        "unacked": one.unacked,
        "full": one.full,
    }


def _named(what: str, name: Name) -> dict[str, str]:
    return names.fields(what, encode_name(name, what))
