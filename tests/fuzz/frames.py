"""Sends mutated frames to a real node, with journal and LMDB: it lives, serves others, and its memory stays flat.

`python -m tests.fuzz.frames SEED`: repeats one run. `--minutes M`: does many runs, from SEED on or from a random seed.
The requests follow from the seed; the order in which the node gets them does not.

Belongs here: the run, and what must hold after each batch. Not here: what is sent (senders.py).
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import grpc

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.errors import Conflict, NoSuchQueue
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import admin_pb2 as admin
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.admin_pb2_grpc import AdminServiceStub
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.storage.offline import CheckReport, check_path
from tests.fuzz.senders import Sender
from tests.slice_node.node_process import How, NodeProcess
from tests.slice_node.raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.admin_pb2_grpc import AdminServiceAsyncStub
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

BATCHES = 25
WARM_BATCHES = 12
"""After so many batches caches, pools and the allocator have what they need."""
GROWTH_BYTES_MAX = 60 << 20
"""Most of the growth is cycles of objects that wait for the garbage collector: if it runs often, growth is 20 MiB."""
BUDGET_BYTES = 320 << 20
SENDERS = 6
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
"""Options of the channel that senders share, which is renewed after BATCHES. gRPC's client in Python loses some calls
that are cancelled at once: they count among the calls of their connection for ever. After about 60 batches no other
call begins there, while open streams go on, the node has no call, and other connections are served."""
HONEST_S = 10
"""A publish by an honest session is delivered and acked within so many seconds."""
HONEST = b"honest"
HANDLE = 7
ARGUMENTS = ("--delta-rows", "3000", "--memory-mib", str(BUDGET_BYTES >> 20))
DEFECTS = (b"Traceback", b"failed inside", b" ERROR ", b" CRITICAL ")
"""The texts in a node's log that no client may cause."""
LOG_SHOWN = 6000
SEEDS = 1 << 40


class Run:
    """Keeps one node and what is known of it. `log`: the node's log. `sent`: the requests of the batch under way, for a
    report."""

    def __init__(self, node: NodeProcess, folder: Path) -> None:
        self.node = node
        self.log = log_of(folder)
        self.requests = 0
        self.sent: list[str] = []
        self.resident: list[int] = []
        self._read_bytes = 0
        self._numbers = 0

    async def batch(self, seed: str, channel: grpc.aio.Channel, honest: RawSession) -> None:
        """Sends one batch and checks the node. Raises AssertionError."""
        self.sent = []
        senders = [
            Sender(Random(f"{seed}/{number}"), channel, self.node.address, self.sent) for number in range(SENDERS)
        ]
        await asyncio.gather(*(sender.send() for sender in senders))
        self.requests += len(self.sent)
        await self._serves(honest)
        await self._is_well(AdminServiceStub(channel))
        await self._tidy(SliceServiceStub(channel), AdminServiceStub(channel))
        self.resident.append(self.node.resident_bytes)

    async def _serves(self, honest: RawSession) -> None:
        self._numbers += 1
        body = b"%d" % self._numbers
        before = len(honest.deliveries)
        chunk = encode_chunk([body])
        try:
            async with asyncio.timeout(HONEST_S):
                await honest.change(wire.Step(publishes=wire.Publishes(keys=[HONEST], chunks=[chunk])))
                await honest.read_until(lambda: len(honest.deliveries) > before)
                (delivery,) = honest.deliveries
                honest.deliveries.clear()
                assert [*parse_chunk(delivery.chunk).bodies] == [body] and [*delivery.handles] == [HANDLE]
                await honest.ack(wire.Ack(key=HONEST, low=delivery.low, to=delivery.to, handles=[HANDLE]))
        except TimeoutError:
            raise AssertionError(f"an honest session is not served within {HONEST_S} s") from None
        except grpc.aio.AioRpcError as error:
            raise AssertionError(f"an honest session ends: {error}; the log: {self._new_log()!r}") from error

    async def _is_well(self, stub: AdminServiceAsyncStub) -> None:
        log = self._new_log()
        assert not any(word in log for word in DEFECTS), f"the log says: {log.decode(errors='backslashreplace')}"
        assert self.node.alive, "the node has ended"
        figures = await stub.Figures(admin.FiguresRequest())
        assert not (figures.silent_bindings or figures.checkpointer_restarts or figures.trouble), figures

    def _new_log(self) -> bytes:
        with self.log.open("rb") as file:
            file.seek(self._read_bytes)
            found = file.read()
        self._read_bytes += len(found)
        return found

    async def _tidy(self, stub: SliceServiceAsyncStub, admin_stub: AdminServiceAsyncStub) -> None:
        """Drops the queues that the batch made: otherwise tables grow, and memory with them."""
        page = await admin_stub.ListQueues(admin.ListQueuesRequest(limit=1000))
        for name in page.queues:
            if name != HONEST:
                try:
                    await stub.Drop(wire.DropRequest(queue=name))
                except grpc.aio.AioRpcError as error:
                    # An abandoned call may have come first.
                    assert isinstance(from_rpc_error(error), NoSuchQueue), error

    def check_memory(self) -> None:
        """Checks the memory's growth in a run of BATCHES. In a longer run the node may fill its budget, and no more."""
        warm, after = self.resident[:WARM_BATCHES], self.resident[WARM_BATCHES:]
        told = [size >> 20 for size in self.resident]
        if len(self.resident) > BATCHES:
            assert max(after) < BUDGET_BYTES, f"the node holds more than its budget, MiB after each batch: {told}"
        elif after:
            assert max(after) - max(warm) < GROWTH_BYTES_MAX, f"the node grows, MiB after each batch: {told}"


def log_of(folder: Path) -> Path:
    return folder / "log"


async def attempt(seed: int, batches: int = BATCHES) -> tuple[int, list[int]]:
    """Does one run in its own folder. Returns how many requests were sent, and the node's memory after each batch.

    Raises AssertionError, with the requests that were sent last.
    """
    with tempfile.TemporaryDirectory(prefix="shoal-frames-") as name:
        folder = Path(name)
        async with _node(folder) as node:
            run = Run(node, folder)
            number = 0
            try:
                async with node.stub() as stub:
                    honest = await _honest(stub)
                    for first in range(0, batches, BATCHES):
                        async with grpc.aio.insecure_channel(node.address, OWN_CONNECTION) as channel:
                            for number in range(first, min(batches, first + BATCHES)):
                                await run.batch(f"{seed}/{number}", channel, honest)
                run.check_memory()
            except (AssertionError, grpc.aio.AioRpcError) as error:
                sent = "\n".join(run.sent)
                log = run.log.read_text(errors="backslashreplace")[-LOG_SHOWN:]
                raise AssertionError(f"{sent}\n{log}\nseed {seed}, batch {number}, after that: {error}") from error
        await _check_stopped(folder)
        return run.requests, run.resident


@asynccontextmanager
async def _node(folder: Path) -> AsyncIterator[NodeProcess]:
    """Yields a node, and kills it at the end."""
    node = await NodeProcess.start(folder / "data", *ARGUMENTS, how=How(log=log_of(folder)))
    try:
        yield node
    finally:
        await node.kill()


async def _honest(stub: SliceServiceAsyncStub) -> RawSession:
    await stub.Declare(wire.DeclareRequest(queue=HONEST))
    await stub.Bind(wire.BindRequest(queue=HONEST, keys=[HONEST]))
    session = await RawSession.open(stub)
    await session.attach([HONEST], HANDLE)
    return session


async def _checked(data: Path) -> CheckReport:
    """Returns the report, once the killed node's checkpointer has noticed the end and has ended too."""
    async with asyncio.timeout(HONEST_S):
        while True:
            try:
                return await asyncio.to_thread(check_path, data)
            except Conflict:
                await asyncio.sleep(0.05)


async def _check_stopped(folder: Path) -> None:
    """Checks that a killed node's folder is sound, and that the node starts again with what it had."""
    report = await _checked(folder / "data")
    assert report.sound, report.problems
    async with _node(folder) as again, again.stub() as stub:
        describe = wire.Describe(queues=[HONEST], bindings=True)
        (found,) = (await stub.Describe(wire.DescribeRequest(describe=describe))).description.queues
        assert found.exists and [binding.key for binding in found.bindings] == [HONEST]
        assert found.messages == 0, "acks that were answered are forgotten"
        async with asyncio.timeout(HONEST_S):
            await _honest(stub)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.frames", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--batches", type=int, default=8 * BATCHES, help="in one run")
    given = parser.parse_args()
    if given.seed is None and not given.minutes:
        parser.error("SEED or --minutes is needed")
    seed = secrets.randbelow(SEEDS) if given.seed is None else given.seed
    until = time.monotonic() + given.minutes * 60
    while True:
        try:
            requests, resident = asyncio.run(attempt(seed, given.batches))
        except AssertionError as error:
            sys.stdout.write(f"{error}\n")
            return 1
        warm, last = resident[min(WARM_BATCHES, len(resident) - 1)] >> 20, resident[-1] >> 20
        sys.stdout.write(f"seed {seed}: {requests:,} requests, {warm} MiB when warm, {last} MiB at the end\n")
        sys.stdout.flush()
        if time.monotonic() > until:
            return 0
        seed += 1


if __name__ == "__main__":
    sys.exit(main())
