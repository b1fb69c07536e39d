"""Gets the cluster's map and calls its slices' administration from Spark's Python workers: plain, blocking gRPC.

Belongs here: channels and errors. Not here: what is sent (importing, verifying, exporting).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc

from shoal.core.cluster_map import ClusterMap, first_map
from shoal_contract.errors import ShoalError, Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import FRAME_BYTES_MAX, REQUEST_BYTES_MAX
from shoal_contract.wire import bulk_pb2 as wire
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub
from shoal_contract.wire.redirector_pb2 import WatchMapRequest
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceStub
from shoal_pipeline.limits import CLUSTER_ANSWER_S_MAX
from shoal_runtime.channels import open_blocking_channel

_OPTIONS: Final[list[tuple[str, int]]] = [
    ("grpc.max_send_message_length", REQUEST_BYTES_MAX),
    ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


def fetch_map(at: str) -> ClusterMap:
    """Returns the cluster's map. `at`: host:port of redirectors, comma-separated; the first that answers counts. Raises
    Unavailable."""
    problem: ShoalError = Unavailable(f"{at!r} names no redirector", subject=at)
    for redirector in filter(None, (part.strip() for part in at.split(","))):
        with open_blocking_channel(redirector, _OPTIONS) as channel:
            try:
                for response in RedirectorServiceStub(channel).WatchMap(
                    WatchMapRequest(), timeout=CLUSTER_ANSWER_S_MAX
                ):
                    return first_map(response)
            except grpc.RpcError as error:
                problem = from_rpc_error(error)
    raise Unavailable(f"no cluster answers at {at}: {problem.message}", subject=at)


@contextmanager
def bulk_stub(slice_name: str, address: str) -> Iterator[BulkServiceStub]:
    """Yields a stub for a slice, and translates gRPC's errors. Raises Unavailable where the slice has no leader."""
    if not address:
        raise Unavailable(
            f"slice {slice_name} has no leader now: try again once `shoal status` shows that it answers",
            subject=slice_name,
        )
    with open_blocking_channel(address, _OPTIONS) as channel:
        try:
            yield BulkServiceStub(channel)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None


def last_chunk(slice_name: str, address: str, run: bytes) -> int:
    """Returns the last chunk of a run that a slice has. Raises the slice's error, Unavailable."""
    with bulk_stub(slice_name, address) as stub:
        answer = stub.ImportStatus(wire.ImportStatusRequest(run=run), timeout=CLUSTER_ANSWER_S_MAX)
        return int(answer.chunk)
