"""The roles of a node, through which its process goes: this is the table, and what happens at each change.

```
waiting ----> opening ----> following ----> leading
                                ^              |
                                +--------------+      the lease is lost, or etcd names another leader or epoch
(each) ----> closing                                  a stop was asked for, or something failed for good
```
What fails or stops before the data is open ends the process at once: there is nothing to close.
- *waiting*: etcd has not said yet what the cluster is, which decides whose data may be opened. It may take for ever.
- *opening*: the data is opened and replayed. Ports are taken, and nothing is answered.
- *following*: what the journal has is applied, checkpoints go on, and the node tries to lead. Calls are refused.
- *leading*: clients are served, in one epoch. A Broker is made for it, and dropped after it.
- *closing*: what is applied is checkpointed, and the data is closed.

Once its lead is over, the node answers nothing (Lead). Then, in this order: the calls of clients end, and their
outcomes are unknown to them; the write to the journal under way ends; the tables go to a replica; the registration
ends; the replica applies what was journaled and not applied, as a start would. No record is lost or applied twice: the
next leader begins where the journal ends. Store and journal stay open all the time.

Belongs here: the order of these steps. Not here: how each is done (joining, following, broker, node_data, doors).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Coroutine, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar
from weakref import ref

from shoal_contract.errors import Fenced, ShoalError, Unavailable
from shoal_runtime.tasks import Tasks, run_until
from shoal_slice_node.adapters.broker import Broker, BrokerOptions
from shoal_slice_node.adapters.doors import Doors
from shoal_slice_node.adapters.following import catch_up, checkpoint_when_due
from shoal_slice_node.adapters.joining import Seat
from shoal_slice_node.adapters.lead import Lead
from shoal_slice_node.adapters.limits import FORMER_DROP_S, GC_THRESHOLDS, STOP_S, SWITCH_S, TICK_MS
from shoal_slice_node.adapters.node_data import DataOptions, NodeData

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


class Role(StrEnum):
    """Says what the process is to its slice now."""

    WAITING = "waiting"
    OPENING = "opening"
    FOLLOWING = "following"
    LEADING = "leading"
    CLOSING = "closing"


NEXT: Final[Mapping[Role, tuple[Role, ...]]] = {
    Role.WAITING: (Role.OPENING, Role.CLOSING),
    Role.OPENING: (Role.FOLLOWING, Role.CLOSING),
    Role.FOLLOWING: (Role.LEADING, Role.CLOSING),
    Role.LEADING: (Role.FOLLOWING, Role.CLOSING),
    Role.CLOSING: (),
}


class Roles:
    """Takes one process through its roles. `stop` ends it at any moment; `failed` ends it with an error."""

    def __init__(
        self, seat: Seat, doors: Doors, data: DataOptions, broker: BrokerOptions, stop: asyncio.Event, stop_s: float
    ) -> None:
        self.role = Role.WAITING
        self._seat = seat
        self._doors = doors
        self._data_options = data
        self._broker_options = broker
        self._stop = stop
        self._stop_s = stop_s
        self._stop_until_s = 0.0
        self._failures: list[BaseException] = []
        self._former: ref[Broker] | None = None
        """The broker of the leading role before, while anything holds it."""
        self._doors.show(self.role)

    def failed(self, _: str, error: BaseException) -> None:
        """Ends the process with this error: trying again here would not mend it."""
        self._failures.append(error)
        self._stop.set()

    async def run(self) -> None:
        """Runs until `stop` is set, or until something fails for good; then raises that error."""
        await run_until(self._stop, self._seat.wait())
        if self._stop.is_set():
            return
        self._enter(Role.OPENING)
        recovered = await run_until(self._stop, self._seat.open())
        if recovered is not None:
            data = NodeData(recovered, self._data_options, self.failed)
            try:
                data.start()
                await self._doors.servers.start()
                await self._take_turns(data)
            except Exception as error:
                self._failures.insert(0, error)
            finally:
                await self._close(data)
        if self._failures:
            raise self._failures[0]

    async def _take_turns(self, data: NodeData) -> None:
        """Follows and leads in turn until `stop` is set."""
        while True:
            self._enter(Role.FOLLOWING)
            lead = await self._follow(data)
            if lead is None:
                return
            self._enter(Role.LEADING)
            await self._lead(data, lead)
            if self._stop.is_set():
                return
            await self._drop_former()

    async def _follow(self, data: NodeData) -> Lead | None:
        """Follows until the node may lead. Returns None if it is to stop. Raises what `Seat.claim` raises, Corrupt."""
        if await run_until(self._stop, catch_up(data)) is None:
            return None
        async with Tasks("following", self.failed) as tasks:
            tasks.start("checkpoint", checkpoint_when_due(data))
            return await run_until(self._stop, self._seat.claim(data.state))

    async def _lead(self, data: NodeData, lead: Lead) -> None:
        """Leads until the lead is over or the node is to stop. Then the tables are the data's again."""
        broker = Broker(data, lead, self.failed, self._broker_options, self._doors.servers.unread)
        broker.start()
        try:
            async with Tasks("leading", self.failed) as tasks:
                known = asyncio.Event()
                tasks.start("partitions", self._assign(lead, broker, known))
                if await self._while_leading(lead, known.wait()) and _still_leads(lead):
                    _be_fast(freeze=self._former is None or self._former() is None)
                    self._doors.open(broker, self.role)
                    _log.info("this node leads its slice in epoch %d, from LSN %d on", lead.epoch, data.state.lsn + 1)
                    await self._while_leading(lead, asyncio.Event().wait())
                await self._part_with_clients(broker, lead)
        finally:
            await broker.stop(self._left_s if self._sound(lead) else 0)
        self._former = ref(broker)
        if not self._failures:
            broker.give_back(lead.why or Unavailable("the slice is stopping; the outcome is unknown", subject="slice"))
        sound = self._sound(lead)
        if sound:
            await self._apply_the_rest(data)
        await self._seat.resign(data.state.lsn if sound else None)

    async def _apply_the_rest(self, data: NodeData) -> None:
        """Applies what was written while the leading role ended, so that a clean stop leaves nothing to be replayed."""
        try:
            async with asyncio.timeout(self._left_s):
                await catch_up(data)
        except TimeoutError:
            _log.info("what was written last is not applied in time: the next start replays it")

    async def _drop_former(self) -> None:
        """Frees what the leading role was made of: its parts refer to each other, and calls that have just ended may
        hold them for some turns of the loop."""
        gc.unfreeze()
        until_s = asyncio.get_running_loop().time() + FORMER_DROP_S
        while True:
            gc.collect()
            if self._former is None or self._former() is None or asyncio.get_running_loop().time() > until_s:
                return
            await asyncio.sleep(TICK_MS / 1000)

    def _sound(self, lead: Lead) -> bool:
        """Returns whether nothing failed and the lead is not over."""
        return not self._failures and not lead.over.is_set()

    async def _while_leading(self, lead: Lead, work: Coroutine[Any, Any, Result]) -> Result | None:
        """Does `work`, and returns its result; None if the lead is over or the node is to stop before."""
        return await run_until(self._stop, run_until(lead.over, work))

    async def _assign(self, lead: Lead, broker: Broker, known: asyncio.Event) -> None:
        try:
            await self._seat.assign(broker, known)
        except Fenced as error:
            lead.end(error)

    async def _part_with_clients(self, broker: Broker, lead: Lead) -> None:
        """Ends all calls of clients: in a clean stop after a checkpoint, and with time to finish."""
        if not self._stop.is_set():
            assert lead.why is not None, "the lead is not over, and no stop was asked for"
            await self._step_down(lead.epoch, lead.why)
            return
        self._doors.show(Role.CLOSING)
        if self._sound(lead):
            await broker.checkpoint_ahead(self._stop_s / 2)
        await self._doors.servers.stop(STOP_S if self._sound(lead) else 0)
        self._stop_until_s = asyncio.get_running_loop().time() + self._stop_s

    @property
    def _left_s(self) -> float:
        """Returns how long the rest of a clean stop may take, in seconds."""
        return max(0.0, self._stop_until_s - asyncio.get_running_loop().time())

    async def _step_down(self, epoch: int, why: ShoalError) -> None:
        self._doors.show(Role.FOLLOWING)
        _log.warning(
            "this node leads its slice no longer, after epoch %d: %s. Calls and sessions of clients end, with outcomes"
            " unknown to them, and they ask again. The process goes on: it keeps its data, and tries to lead again. If"
            " this comes often, look at etcd and at the network to it",
            *(epoch, why),
        )
        await self._doors.refuse(str(why))

    async def _close(self, data: NodeData) -> None:
        self._enter(Role.CLOSING)
        await self._doors.servers.stop(0)
        within_s = self._left_s if self._stop_until_s else self._stop_s
        await data.close(checkpoint=not self._failures, within_s=within_s)

    def _enter(self, role: Role) -> None:
        assert role in NEXT[self.role], f"no {role} after {self.role}"
        self.role = role
        self._doors.show(role)


def _still_leads(lead: Lead) -> bool:
    """Returns whether the node may lead on. Ends a lead whose lease is over by the clock, though nothing has told so
    yet: the process may have stood still."""
    if not lead.remaining_s:
        lead.end(Fenced("the lease was over by the clock before this node could serve", subject="lease"))
    return not lead.over.is_set()


def _be_fast(freeze: bool) -> None:
    """Sets the interpreter for serving. Objects loaded so far are long-lived: the collector need not check them again,
    with `freeze`. They must not hold a former role: it would stay for as long as this one. New objects are mostly freed
    by reference counting."""
    gc.collect()
    if freeze:
        gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_S)
