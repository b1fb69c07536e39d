"""Makes a cluster's records in an etcd that runs elsewhere: once, before or while the servers start. They wait for it.

`python -m shoal_coordination create --cluster NAME --slices s0,s1,... --etcd HOST:PORT[,...] [--id HEX]`
Repeating it changes nothing. It refuses a cluster that exists with another P, other slices or another id, and then
changes nothing either. Another name is another cluster, with an id of its own: several may share an etcd. Slices that
hold data of one cluster refuse to serve another.
At success it prints one line: {"cluster": ..., "id": ..., "partitions": ..., "slices": [...]}; else it ends with 1 and
says why. If etcd lost its records, `--id` makes them again for the slices that hold that cluster's data.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from shoal_contract.errors import OutcomeUnknown, ShoalError
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_coordination.arguments import ENDPOINTS_METAVAR, PASSWORD_VARIABLE, add_etcd_arguments, etcd_options
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster import create_cluster
from shoal_coordination.keys import check_identity, check_record_name
from shoal_coordination.limits import CREATE_WAIT_S, PAUSE_S_MAX
from shoal_coordination.options import EtcdOptions
from shoal_coordination.records import ClusterConfig


@dataclass(frozen=True, slots=True)
class Settings:
    """Holds the arguments. `wait_s`: how long etcd may be silent before this gives up, in seconds. `id` empty: a new
    one, or the existing cluster's."""

    cluster: str
    id: str
    slices: tuple[str, ...]
    partitions: int
    etcd: EtcdOptions
    wait_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code; argparse exits with 2 for bad arguments."""
    settings = _settings(arguments)
    try:
        config = asyncio.run(create(settings))
    except ShoalError as error:
        sys.stderr.write(f"create {settings.cluster}: {error}\n")
        return 1
    told = {"cluster": config.name, "id": config.id, "partitions": config.partitions, "slices": settings.slices}
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


async def create(settings: Settings) -> ClusterConfig:
    """Makes the cluster. Raises Conflict, OutOfRange, NoRights; OutcomeUnknown if it still comes after `wait_s`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + settings.wait_s
    async with EtcdClient(settings.etcd) as client:
        while True:
            try:
                return await create_cluster(
                    client,
                    settings.cluster,
                    settings.slices,
                    settings.partitions,
                    exactly=True,
                    cluster_id=settings.id,
                )
            except OutcomeUnknown:
                if loop.time() > until:
                    raise
            await asyncio.sleep(PAUSE_S_MAX)


def _settings(arguments: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="shoal_coordination", description=__doc__)
    parser.add_argument("action", choices=["create"])
    parser.add_argument("--cluster", required=True, metavar="NAME")
    parser.add_argument("--id", default="", metavar="HEX", help="id of a cluster whose records in etcd were lost")
    parser.add_argument("--slices", required=True, metavar="NAME,...")
    parser.add_argument(
        "--partitions", type=int, default=PARTITIONS_DEFAULT, metavar="P", help="cannot be changed later (%(default)s)"
    )
    parser.add_argument(
        "--wait-s", type=float, default=CREATE_WAIT_S, metavar="S", help="seconds to wait for etcd (%(default)s)"
    )
    parser.add_argument("--etcd", required=True, metavar=ENDPOINTS_METAVAR, help="etcd's endpoints")
    add_etcd_arguments(parser)
    given = parser.parse_args(arguments)
    slices = tuple(given.slices.split(","))
    try:
        check_record_name(given.cluster, "cluster")
        if given.id:
            check_identity(given.id, "cluster id")
        for name in slices:
            check_record_name(name, "slice")
        etcd = etcd_options(given, os.environ.get(PASSWORD_VARIABLE, ""))
    except (ShoalError, OSError) as error:
        parser.error(str(error))
    return Settings(given.cluster, given.id, slices, given.partitions, etcd, given.wait_s)
