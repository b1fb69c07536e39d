"""Reads the slice node's arguments and environment, and makes its settings of them. No other module
reads either, except core_choice, which reads SHOAL_CORE before this one is loaded."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from shoal_contract.data_folder import check_not_data
from shoal_contract.errors import Conflict, Malformed, ShoalError
from shoal_coordination.arguments import ENDPOINTS_METAVAR, PASSWORD_VARIABLE, add_etcd_arguments, etcd_options
from shoal_coordination.keys import check_record_name
from shoal_coordination.options import EtcdOptions
from shoal_slice_node.adapters.limits import ARCHIVE_EVERY_S_DEFAULT, CHECKPOINT_STOP_S, DELTA_ROWS_MAX
from shoal_slice_node.core.memory import MemoryPlan, plan_memory
from shoal_slice_node.storage.mapped_memory import memory_mib_default

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Settings:
    """Holds the node's settings. `etcd` None: standalone. `advertise` empty: the listening address. `admin_listen` and
    `admin_advertise`: the same for AdminService and BulkService. `archive`: this node's own folder. `http` empty: no
    HTTP."""

    slice: str
    node: str
    listen: str
    advertise: str
    admin_listen: str
    admin_advertise: str
    data: Path
    accept_empty: bool
    cluster: str
    etcd: EtcdOptions | None
    delta_rows: int
    memory: MemoryPlan
    archive: Path | None
    archive_every_s: float
    http: str
    stop_s: float


def settings_of(arguments: Sequence[str] | None) -> Settings:
    """Parses the arguments; argparse exits with 2 for bad ones."""
    parser = argparse.ArgumentParser(prog="shoal_slice_node", description=__doc__)
    _add_names(parser)
    _add_bounds(parser)
    given = parser.parse_args(arguments)
    try:
        for name, what in ((given.slice, "slice"), (given.node, "node")):
            check_record_name(name, what)
        etcd = None if given.standalone else _etcd(given)
        _check_advertised("--advertise", given.advertise or given.listen, given.advertise, alone=given.standalone)
        admin = given.admin_advertise or given.admin_listen
        if admin:
            _check_advertised("--admin-advertise", admin, given.admin_advertise, alone=given.standalone)
        if given.archive is not None:
            _check_archive(given.archive, given.slice, given.data)
        memory = plan_memory(given.memory_mib or memory_mib_default())
    except (ShoalError, OSError) as error:
        parser.error(str(error))
    return Settings(
        slice=given.slice,
        node=given.node,
        listen=given.listen,
        advertise=given.advertise,
        admin_listen=given.admin_listen,
        admin_advertise=given.admin_advertise,
        data=given.data,
        accept_empty=given.accept_empty,
        cluster=given.cluster,
        etcd=etcd,
        delta_rows=given.delta_rows,
        memory=memory,
        archive=given.archive and given.archive / given.slice / given.node,
        archive_every_s=given.archive_every,
        http=given.http,
        stop_s=given.stop_s,
    )


def _check_archive(archive: Path, slice_name: str, data: Path) -> None:
    """Raises Conflict for an archive whose segments would lie where this node's data is, or another's."""
    check_not_data(archive)
    at, own = archive.resolve(), data.resolve()
    if own == at or own.is_relative_to(at / slice_name):
        raise Conflict(
            f"--archive {archive} is not for an archive: its segments would lie in --data {data}, or around it"
        )


def _add_names(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that name the node, its addresses, and its data."""
    parser.add_argument("--slice", required=True, metavar="NAME")
    parser.add_argument("--node", required=True, metavar="NAME")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", help="port 0 takes a free one")
    parser.add_argument(
        "--advertise", default="", metavar="HOST:PORT", help="where clients reach this node, if not where it listens"
    )
    parser.add_argument(
        "--admin-listen", default="", metavar="HOST:PORT",
        help="where AdminService and BulkService listen, if not with the rest",
    )  # fmt: skip
    parser.add_argument("--admin-advertise", default="", metavar="HOST:PORT", help="where other processes reach them")
    parser.add_argument("--http", default="", metavar="HOST:PORT", help="health and metrics; port 0 takes a free one")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder for journal and store")
    parser.add_argument(
        "--accept-empty", action="store_true",
        help="begin without the data that etcd's record names, or with an old copy of it: what is missing is then gone",
    )  # fmt: skip
    parser.add_argument("--cluster", default="", metavar="NAME")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--etcd", metavar=ENDPOINTS_METAVAR, help="etcd's endpoints")
    where.add_argument("--standalone", action="store_true", help="run without a cluster and etcd: own every partition")
    add_etcd_arguments(parser)


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--delta-rows", type=_at_least(int, 1), default=DELTA_ROWS_MAX, metavar="N",
        help="rows changed before a checkpoint begins (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--memory-mib", type=_at_least(int, 0), default=0, metavar="N",
        help="memory that this process may use, besides its checkpointer; 0: a quarter of the machine's memory",
    )  # fmt: skip
    parser.add_argument(
        "--stop-s", type=_at_least(float, 0), default=CHECKPOINT_STOP_S, metavar="S",
        help="how long a clean stop may take before it leaves the rest to the journal (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--archive", type=Path, metavar="DIR",
        help="closed journal segments go to DIR/SLICE/NODE before they are deleted",
    )  # fmt: skip
    parser.add_argument(
        "--archive-every", type=_at_least(float, 0), default=ARCHIVE_EVERY_S_DEFAULT, metavar="S",
        help="a segment older than this is archived though it is not full; 0: none (default %(default)s)",
    )  # fmt: skip


def _at_least(form: Callable[[str], Number], least: Number) -> Callable[[str], Number]:
    """Returns a type for argparse: a number that is not below `least`."""

    def number(text: str) -> Number:
        try:
            value = form(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text} is not a number") from None
        if not value >= least or value == float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least} on")
        return value

    return number


def _check_advertised(option: str, address: str, advertised: str, *, alone: bool) -> None:
    """Checks an advertised address. Raises Malformed. A node that listens on every interface must advertise an address,
    or no client would find it."""
    host, _, port = address.rpartition(":")
    if advertised and (not host or not port.isdecimal() or not 0 < int(port) < 1 << 16):
        raise Malformed(f"{option} {address} is not host:port", subject=address)
    if host in ("", "0.0.0.0", "[::]") and not alone:
        raise Malformed(f"{address} is every interface: say with {option} where clients reach this node")


def _etcd(given: argparse.Namespace) -> EtcdOptions:
    check_record_name(given.cluster, "cluster")
    return etcd_options(given, os.environ.get(PASSWORD_VARIABLE, ""))
