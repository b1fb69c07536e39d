"""Follows the cluster in etcd and keeps the board up to date. The board keeps what it shows while etcd is away."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import NoReturn

from shoal_contract.errors import ShoalError
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster_view import ClusterView
from shoal_coordination.cluster_watch import watch_cluster
from shoal_coordination.records import SliceRecord
from shoal_redirector import limits
from shoal_redirector.adapters.board import Board
from shoal_redirector.core.directory import Directory, SliceAddress, directory_of

_log = logging.getLogger(__name__)


async def follow(client: EtcdClient, cluster: str, board: Board) -> NoReturn:
    """Runs until cancelled. A record that cannot be read is logged and tried again every REWATCH_S."""
    while True:
        try:
            async with aclosing(watch_cluster(client, cluster, board.link)) as views:
                async for view in views:
                    board.show(directory_in(view))
        except ShoalError as error:
            _log.error(
                "the records of cluster %s in etcd cannot be followed: %s. The last map stays in use; it is tried again"
                " every %g s",
                *(cluster, error, limits.REWATCH_S),
            )
        board.link(False)
        await asyncio.sleep(limits.REWATCH_S)


def directory_in(view: ClusterView) -> Directory:
    """Returns the directory of a view. A slice whose leader is not registered has no address there."""
    known = {name: _address_in(name, record, view.leads(name)) for name, record in view.slices.items()}
    return directory_of(view.map, known)


def _address_in(name: str, record: SliceRecord, leads: bool) -> SliceAddress:
    if not leads:
        return SliceAddress(name, epoch=record.epoch)
    return SliceAddress(name, record.leader_address, record.epoch, record.leader_admin_address)
