"""`shoal demo`: replays real chat and churn through a local cluster that loses a node, and checks every message."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from rich.console import Console

from shoal_contract.errors import BadCall
from shoal_local.cluster import LocalCluster
from shoal_ops import output
from shoal_ops.commands.replaying import shown_progress, tell
from shoal_ops.consoles import ErrorConsole
from shoal_ops.exits import DONE, FOUND
from shoal_ops.replay.events import count_events
from shoal_ops.replay.run import Replay, Source
from shoal_runtime.tasks import Tasks

CHANNEL = "linux-channel.events.tsv.gz"
CHURN = ("k8s-org.churn.tsv.gz", "rust-team.churn.tsv.gz")
CHECKOUT = Path(__file__).parents[3]


async def run_demo(data: Path | None, slices: int, as_json: bool, etcd: Path | None = None) -> int:
    """Runs the demo and returns its exit code. `data`: the folder of the three files; None: the checkout's
    tests/data."""
    sources = _sources(data or CHECKOUT / "tests" / "data")
    events = await asyncio.to_thread(lambda: sum(count_events(source.path) for source in sources))
    console = ErrorConsole(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="shoal-demo-") as folder:
        console.print(f"starting a cluster of {slices} slices in {folder}")
        async with LocalCluster(Path(folder), slices=slices, etcd=etcd) as cluster, Tasks("demo") as tasks:
            console.print(f"replaying {events:,} real events from {', '.join(source.path.name for source in sources)}")
            replay = Replay(cluster.redirector, sources)
            middle = asyncio.Event()
            replay.tally.on_event = lambda done: middle.set() if 2 * done >= events else None
            losing = tasks.start("lose a node", _lose_a_node(cluster, middle, console))
            async with shown_progress(replay, events, console):
                report = await replay.run()
            tell(report, as_json, {"killed": [await losing]})
            if not as_json:
                output.say(_verdict(report.mismatches))
    return FOUND if report.mismatches else DONE


async def _lose_a_node(cluster: LocalCluster, middle: asyncio.Event, console: Console) -> str:
    """Kills the node of a slice once `middle` is set, and starts it again. Returns the slice's name."""
    await middle.wait()
    name = cluster.slices[0]
    pid = cluster.pid(name)
    await cluster.kill(name)
    console.print(f"kill -9 {pid}: the node of slice {name} is gone, in the middle of it all")
    await cluster.restart(name)
    console.print(f"slice {name} is back, at the same address, from its journal")
    return name


def _sources(folder: Path) -> list[Source]:
    for name in (CHANNEL, *CHURN):
        if not (folder / name).is_file():
            raise BadCall(
                f"there is no {name} in {folder}: the demo's event logs come with the repository, not with the package."
                " Clone it and give its tests/data with --data"
            )
    return [Source(folder / CHANNEL), *(Source(folder / name, publish_after_churn=True) for name in CHURN)]


def _verdict(mismatches: int) -> str:
    if mismatches:
        return "NOT every queue got exactly its messages"
    return "every queue got exactly its messages, in order"
