"""`shoal locate` and `shoal status`: what the redirector says, and whether every slice answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from time import monotonic

import grpc

from shoal_contract.errors import Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.names import encode_name
from shoal_contract.wire import redirector_pb2 as wire
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceStub
from shoal_contract.wire.slice_pb2 import DescribeRequest
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_ops import output
from shoal_ops.exits import DONE, UNKNOWN
from shoal_ops.limits import VERB_DEADLINE_S


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key lies. `address` is empty while its slice has no leader."""

    key: str
    partition: int
    slice: str
    address: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SliceStatus:
    """`answers_ms` is -1 where it did not answer: then `problem` says why."""

    slice: str
    address: str
    epoch: int
    partitions: int
    answers_ms: float
    problem: str = ""


async def locate(at: str, keys: Sequence[str], as_json: bool) -> None:
    names = [encode_name(key, "key") for key in keys]
    async with grpc.aio.insecure_channel(at) as channel:
        try:
            found = await RedirectorServiceStub(channel).Locate(wire.LocateRequest(keys=names), timeout=VERB_DEADLINE_S)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
    places = []
    for key, partition, owner in zip(keys, found.partitions, found.owners, strict=True):
        owned_by = found.slices[owner]
        places.append(Place(key, partition, owned_by.slice, owned_by.address, owned_by.epoch))
    if as_json:
        keys_found = [asdict(place) for place in places]
        output.say_json({"map_version": found.map_version, "age_ms": found.age_ms, "keys": keys_found})
    else:
        rows = [
            (output.shown(one.key), one.partition, one.slice, one.address or "(no leader)", one.epoch) for one in places
        ]
        output.table(("key", "partition", "slice", "address", "epoch"), rows)


async def status(at: str, as_json: bool) -> int:
    """Returns the exit code: UNKNOWN if a slice does not answer."""
    first = await _first_map(at)
    owned = Counter(first.owners)
    asked = [_ask(one, owned[index]) for index, one in enumerate(first.slices)]
    found = list(await asyncio.gather(*asked))
    if as_json:
        slices = [asdict(one) for one in found]
        output.say_json(
            {"map_version": first.map_version, "age_ms": first.age_ms, "partitions": first.partitions, "slices": slices}
        )
    else:
        age = f", {first.age_ms / 1000:.1f} s old: the redirector has lost etcd" if first.age_ms else ""
        output.say(f"redirector {at}: map version {first.map_version}, {first.partitions:,} partitions{age}")
        rows = [
            (one.slice, one.address, one.epoch, one.partitions, one.problem or f"answers in {one.answers_ms:.1f} ms")
            for one in found
        ]
        output.table(("slice", "address", "epoch", "partitions", "state"), rows)
    return UNKNOWN if any(one.problem for one in found) else DONE


async def _first_map(at: str) -> wire.WatchMapResponse:
    async with grpc.aio.insecure_channel(at) as channel:
        stream = RedirectorServiceStub(channel).WatchMap(wire.WatchMapRequest(), timeout=VERB_DEADLINE_S)
        try:
            async for response in stream:
                return response
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        finally:
            stream.cancel()
    raise Unavailable(f"redirector {at} ended the answer", subject=at)


async def _ask(at: wire.SliceAddress, partitions: int) -> SliceStatus:
    if not at.address:
        return SliceStatus(at.slice, "", at.epoch, partitions, -1, "has no leader")
    began = monotonic()
    async with grpc.aio.insecure_channel(at.address) as channel:
        try:
            await SliceServiceStub(channel).Describe(DescribeRequest(), timeout=VERB_DEADLINE_S / 4)
        except grpc.RpcError as error:
            problem = f"does not answer: {from_rpc_error(error).message}"
            return SliceStatus(at.slice, at.address, at.epoch, partitions, -1, problem)
    return SliceStatus(at.slice, at.address, at.epoch, partitions, round((monotonic() - began) * 1000, 2))
