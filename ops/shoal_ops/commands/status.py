"""`shoal status`: shows the map and, for every slice, whether it answers, its version, its core and its trouble."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass
from time import monotonic

import grpc

from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.version import version
from shoal_contract.wire import redirector_pb2 as wire
from shoal_contract.wire.admin_pb2 import FiguresRequest, FiguresResponse
from shoal_contract.wire.admin_pb2_grpc import AdminServiceStub
from shoal_contract.wire.slice_pb2 import DescribeRequest
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_ops import output
from shoal_ops.commands.redirectors import ask_redirector, first_map
from shoal_ops.exits import DONE, FOUND, UNKNOWN
from shoal_ops.limits import SLICE_DEADLINE_S
from shoal_runtime.channels import open_channel

COLUMNS = ("slice", "address", "administration", "epoch", "partitions", "version", "core", "state", "trouble")
NOT_KNOWN = "?"


@dataclass(frozen=True, slots=True)
class SliceStatus:
    """Describes the state of one slice. `answers_ms` is -1 where it did not answer; `problem` says why. `trouble`: why
    it takes no changes, "" for no trouble, None where its administration did not answer. `core`: `python` or
    `compiled`; "" where that is not known."""

    slice: str
    address: str
    admin_address: str
    epoch: int
    partitions: int
    answers_ms: float
    version: str = ""
    core: str = ""
    trouble: str | None = None
    problem: str = ""


async def tell_status(at: str, as_json: bool) -> int:
    """Prints the status. Returns the exit code: UNKNOWN if a slice does not answer, FOUND if one has trouble."""
    redirector, first = await ask_redirector(at, first_map)
    owned = Counter(first.owners)
    found = list(await asyncio.gather(*(_ask(one, owned[index]) for index, one in enumerate(first.slices))))
    if as_json:
        figures = {"map_version": first.map_version, "age_ms": first.age_ms, "partitions": first.partitions}
        output.say_json({"version": version(), **figures, "slices": [asdict(one) for one in found]})
    else:
        _tell(redirector, first, found)
    if any(one.problem for one in found):
        return UNKNOWN
    return FOUND if any(one.trouble for one in found) else DONE


def _tell(redirector: str, first: wire.WatchMapResponse, found: list[SliceStatus]) -> None:
    age = f", {first.age_ms / 1000:.1f} s old: the redirector has lost etcd" if first.age_ms else ""
    output.say(
        f"redirector {redirector}: map version {first.map_version}, {output.count(first.partitions, 'partition')}{age};"
        f" this is shoal {version()}"
    )
    output.table(COLUMNS, [_row(one) for one in found])
    for one in found:
        if ":" in one.problem:
            output.remark(f"slice {one.slice} {one.problem}")
    silent = [one for one in found if one.trouble is None and not one.problem]
    if silent:
        output.remark(
            f"{NOT_KNOWN}: the administration of {', '.join(one.slice for one in silent)} does not answer from here;"
            " clients are served"
        )


def _row(one: SliceStatus) -> tuple[object, ...]:
    state = (one.problem and one.problem.partition(":")[0]) or f"answers in {one.answers_ms:.1f} ms"
    trouble = "" if one.problem else NOT_KNOWN if one.trouble is None else one.trouble or "none"
    return (
        *(one.slice, one.address or "(no leader)", one.admin_address, one.epoch, one.partitions),
        *(one.version or NOT_KNOWN, one.core or NOT_KNOWN, state, trouble),
    )


async def _ask(at: wire.SliceAddress, partitions: int) -> SliceStatus:
    # A slice of an earlier version serves its administration at the clients' address.
    admin = at.admin_address or at.address
    if not at.address:
        return SliceStatus(at.slice, "", admin, at.epoch, partitions, -1, problem="has no leader")
    (answers_ms, problem), figures = await asyncio.gather(_reach(at.address), _figures(admin))
    trouble = None if figures is None else figures.trouble
    known = ("", "") if figures is None else (figures.version, figures.core)
    return SliceStatus(at.slice, at.address, admin, at.epoch, partitions, answers_ms, *known, trouble, problem)


async def _reach(address: str) -> tuple[float, str]:
    """Returns how many milliseconds a call to the clients' address takes, or -1 and why there is no answer."""
    began = monotonic()
    async with open_channel(address) as channel:
        try:
            await SliceServiceStub(channel).Describe(DescribeRequest(), timeout=SLICE_DEADLINE_S)
        except grpc.RpcError as error:
            return -1, f"does not answer: {from_rpc_error(error).message}"
    return round((monotonic() - began) * 1000, 2), ""


async def _figures(address: str) -> FiguresResponse | None:
    """Returns the figures of the slice's administration; None where it does not answer."""
    async with open_channel(address) as channel:
        try:
            return await AdminServiceStub(channel).Figures(FiguresRequest(), timeout=SLICE_DEADLINE_S)
        except grpc.RpcError:
            return None
