"""A node's process inside the test's own loop, whose lead ends when a test says so; real data, and real gRPC."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakSet

from shoal_contract.data_folder import STORE_FOLDER
from shoal_contract.errors import Fenced
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_runtime.tasks import Tasks
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.doors import Doors
from shoal_slice_node.adapters.figures import Figures
from shoal_slice_node.adapters.lead import FOREVER_S, Lead
from shoal_slice_node.adapters.metrics import ShownRole
from shoal_slice_node.adapters.node_data import DataOptions
from shoal_slice_node.adapters.recovery import Recovered, recover
from shoal_slice_node.adapters.roles import Role, Roles
from shoal_slice_node.adapters.servers import Servers
from shoal_slice_node.core.apply.state import State

from .brokers import OPTIONS

WAIT_S = 60
Shows = Callable[[ShownRole, Figures | None], None]


def _nothing(shown: ShownRole, figures: Figures | None) -> None:
    pass


class TestSeat:
    """Opens the data once it `knows` the cluster, and gives the lead whenever it `may_lead`. `brokers`: those that
    live."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self.knows = asyncio.Event()
        self.knows.set()
        self.may_lead = asyncio.Event()
        self.may_lead.set()
        self.epoch = 0
        self.lead: Lead | None = None
        self.brokers: WeakSet[Broker] = WeakSet()
        self.noted: list[int | None] = []
        """What `leave` was told."""
        self.claims = 0
        self.lease_left_s = FOREVER_S
        """What the clock says of the lease, whatever was told."""
        self.before_known: Callable[[], None] = lambda: None
        """Called after the partitions are in force, and before the role hears so."""
        self._folder = folder

    async def wait(self) -> None:
        await self.knows.wait()

    async def open(self) -> Recovered:
        return await recover(self._folder)

    async def claim(self, state: State) -> Lead:
        self.claims += 1
        await self.may_lead.wait()
        self.epoch += 1
        self.lease_left_s = FOREVER_S
        self.lead = Lead(self.epoch, lambda: self.lease_left_s)
        return self.lead

    async def assign(self, broker: Broker, known: asyncio.Event) -> None:
        self.brokers.add(broker)
        await broker.set_owned(1, b"\x01" * PARTITIONS_DEFAULT)
        self.before_known()
        known.set()
        await asyncio.get_running_loop().create_future()

    async def resign(self, noted_lsn: int | None) -> None:
        self.noted.append(noted_lsn)

    def depose(self) -> None:
        assert self.lead is not None
        self.lead.end(Fenced("the test took the lead away"))


class Process:
    """`roles` runs as the task `running`. `opened`: the epochs in which it served first. `served`: all in which it did.
    `serves`: calls reach it. `shows`: is told what probes are shown."""

    def __init__(self, folder: Path, shows: Shows) -> None:
        self._shows = shows
        self.seat = TestSeat(folder)
        self.stop = asyncio.Event()
        self.servers = Servers("127.0.0.1:0", "", "", "", OPTIONS.memory.budget_bytes)
        self.opened: list[int] = []
        self.served: list[int] = []
        self.serves = False
        doors = Doors(
            self.servers,
            self,
            "s01",
            "n01",
            folder / STORE_FOLDER,
            lambda broker: self.opened.append(broker.lead.epoch),
        )
        self.roles = Roles(self.seat, doors, DataOptions(1 << 30), OPTIONS, self.stop, stop_s=WAIT_S)
        self.running: asyncio.Task[None]

    def show(self, shown: ShownRole, figures: Figures | None) -> None:
        self.serves = figures is not None
        if self.serves:
            self.served.append(self.seat.epoch)
        self._shows(shown, figures)

    async def until(self, role: Role, epoch: int = 0) -> None:
        """Returns once it has this role, in this epoch or a later one; a leader also serves then."""
        leads = role is Role.LEADING
        async with asyncio.timeout(WAIT_S):
            while self.roles.role is not role or self.seat.epoch < epoch or self.serves is not leads:
                assert not self.running.done(), self.running.exception()
                await asyncio.sleep(0.002)

    async def stopped(self) -> None:
        """Stops it. Raises what it failed with."""
        self.stop.set()
        async with asyncio.timeout(WAIT_S):
            await self.running


@asynccontextmanager
async def process(folder: Path, shows: Shows = _nothing) -> AsyncIterator[Process]:
    """A process that runs; it is stopped at the end if it still does."""
    found = Process(folder, shows)
    thresholds, switch_s = gc.get_threshold(), sys.getswitchinterval()
    async with Tasks("process") as tasks:
        found.running = tasks.start("roles", found.roles.run(), awaited=True)
        try:
            yield found
        finally:
            found.stop.set()
            await asyncio.wait([found.running], timeout=WAIT_S)
            gc.unfreeze()  # It sets the interpreter for serving, and this one is the tests'.
            gc.set_threshold(*thresholds)
            sys.setswitchinterval(switch_s)
