"""`shoal locate`: asks a redirector which slice owns a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import grpc

from shoal_contract.errors import Malformed
from shoal_contract.names import encode_name
from shoal_contract.wire import redirector_pb2 as wire
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceStub
from shoal_ops import output
from shoal_ops.commands.redirectors import ask_redirector


@dataclass(frozen=True, slots=True)
class Place:
    """Names a key's partition and slice. `address` is empty while the slice has no leader."""

    key: str
    partition: int
    slice: str
    address: str
    epoch: int


async def locate(at: str, keys: Sequence[str], as_json: bool) -> None:
    names = [encode_name(key, "key") for key in keys]

    async def ask(channel: grpc.aio.Channel, timeout_s: float) -> wire.LocateResponse:
        return await RedirectorServiceStub(channel).Locate(wire.LocateRequest(keys=names), timeout=timeout_s)

    redirector, found = await ask_redirector(at, ask)
    _check(redirector, found, len(keys))
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


def _check(redirector: str, found: wire.LocateResponse, keys: int) -> None:
    """Raises Malformed unless the answer names a slice that it describes for each key."""
    if not len(found.partitions) == len(found.owners) == keys or any(one >= len(found.slices) for one in found.owners):
        raise Malformed(f"the answer of redirector {redirector} cannot be read: it does not place {keys} keys")
