"""Serves AdminService over gRPC: figures, and lists that are gathered without blocking the loop. Reads only.

A list shows what is applied when it is requested; it does not wait in the commit loop.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, TypeVar

import grpc

from shoal_contract.errors import InvalidName, TooLarge
from shoal_contract.limits import LIST_ITEMS_MAX, NAME_BYTES_MAX
from shoal_contract.names import check_name
from shoal_contract.wire import admin_pb2 as wire
from shoal_contract.wire import slice_pb2
from shoal_runtime.places import Places
from shoal_slice_node.adapters.admission import Admission
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.figures import Figures
from shoal_slice_node.adapters.limits import LIST_ITEMS_DEFAULT, LIST_TURN_MS, LISTS
from shoal_slice_node.adapters.unary import Call, Unary, unary_handlers
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.unacked_counts import unacked_of_key
from shoal_slice_node.core.read.listing import ListedBinding, Page, list_bindings, list_keys, list_members, list_queues

Context = grpc.aio.ServicerContext[Any, Any]
Item = TypeVar("Item")


class AdminService:
    def __init__(self, broker: Broker, figures: Figures) -> None:
        self._state = broker.state
        self._feeds = broker.node.dispatcher.feeds
        self._between_records = broker.commit_loop.between_records
        self._figures = figures
        self._lists = Places("lists", LISTS)

    async def figures(self, request: wire.FiguresRequest, call: Call) -> wire.FiguresResponse:
        return self._figures.now()

    async def list_queues(self, request: wire.ListQueuesRequest, call: Call) -> wire.ListQueuesResponse:
        _check_after(request.prefix, request.after)
        work = list_queues(self._state, request.prefix, request.after, _limit(request.limit))
        queues, following = await self._gather(work, call)
        return wire.ListQueuesResponse(queues=queues, next=following)

    async def list_keys(self, request: wire.ListKeysRequest, call: Call) -> wire.ListKeysResponse:
        _check_after(request.prefix, request.after)
        work = list_keys(self._state, request.prefix, request.after, _limit(request.limit))
        keys, following = await self._gather(work, call)
        names, queues = [name for name, _ in keys], [count for _, count in keys]
        return wire.ListKeysResponse(keys=names, queues=queues, next=following)

    async def list_members(self, request: wire.ListMembersRequest, call: Call) -> wire.ListMembersResponse:
        work = list_members(self._state, request.key, request.after, _limit(request.limit))
        queues, following = await self._gather(work, call)
        return wire.ListMembersResponse(queues=queues, next=following)

    async def list_bindings(self, request: wire.ListBindingsRequest, call: Call) -> wire.ListBindingsResponse:
        check_name(request.queue, "queue")
        work = list_bindings(self._state, request.queue, request.after, _limit(request.limit))
        bindings, following = await self._gather(work, call)
        # Nothing awaits from the last step to the end, so dispatch is looked at between records, too.
        queue_id = self._state.tables.queue_by_name.get(request.queue)
        feed = None if queue_id is None else self._feeds.get(queue_id)
        return wire.ListBindingsResponse(bindings=[_to_wire(one, feed) for one in bindings], next=following)

    async def _gather(self, work: Page[Item], call: Call) -> tuple[list[Item], bytes]:
        """Gathers one page in turns. Raises ResourceExhausted when too many lists are requested at a time."""
        async with self._lists.place(call.peer):
            return await in_turns(work, self._between_records)


async def in_turns(work: Page[Item], between_records: asyncio.Event) -> tuple[list[Item], bytes]:
    """Runs `work` to its end and returns its result. It blocks the loop for LIST_TURN_MS plus one step at a time."""
    await between_records.wait()
    turn_end = time.perf_counter() + LIST_TURN_MS / 1000
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: tuple[list[Item], bytes] = done.value
            return found
        if time.perf_counter() > turn_end:
            await asyncio.sleep(0)
            await between_records.wait()
            turn_end = time.perf_counter() + LIST_TURN_MS / 1000


def admin_handlers(broker: Broker, figures: Figures, admission: Admission) -> grpc.GenericRpcHandler:
    """Returns the handler of AdminService, to be added to a server."""
    service = AdminService(broker, figures)
    methods = {
        "Figures": Unary(wire.FiguresRequest, service.figures),
        "ListQueues": Unary(wire.ListQueuesRequest, service.list_queues),
        "ListKeys": Unary(wire.ListKeysRequest, service.list_keys),
        "ListMembers": Unary(wire.ListMembersRequest, service.list_members),
        "ListBindings": Unary(wire.ListBindingsRequest, service.list_bindings),
    }
    return unary_handlers("shoal.v1.AdminService", methods, admission)


def _limit(asked: int) -> int:
    if asked > LIST_ITEMS_MAX:
        raise TooLarge(
            f"{asked} items asked for; a page has up to {LIST_ITEMS_MAX}",
            subject="limit",
            limit=LIST_ITEMS_MAX,
            value=asked,
        )
    return asked or LIST_ITEMS_DEFAULT


def _check_after(prefix: bytes, after: bytes) -> None:
    """Checks only lengths: any bytes are valid, up to one more than the longest name. Raises InvalidName."""
    for what, name in (("prefix", prefix), ("after", after)):
        if len(name) > NAME_BYTES_MAX + 1:
            raise InvalidName(
                f"{what} is {len(name)} bytes; no name is longer than {NAME_BYTES_MAX}",
                subject=what,
                limit=NAME_BYTES_MAX,
                value=len(name),
            )


def _to_wire(listed: ListedBinding, feed: Feed | None) -> wire.ListedBinding:
    """Writes a binding of a queue. `feed` None: nothing consumes the queue, and none of it rests."""
    unacked, full = (0, False) if feed is None else unacked_of_key(feed, listed.key_id)
    binding = slice_pb2.BindingDescription(
        key=listed.key,
        start=listed.start,
        cursor=listed.cursor,
        end=listed.end,
        messages=listed.messages,
        unacked=unacked,
        full=full,
    )
    return wire.ListedBinding(binding=binding, head=listed.head)
