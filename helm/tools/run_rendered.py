"""Runs what the chart renders as processes of this machine, and a replay on them; without a replay, until Ctrl-C.

`python helm/tools/run_rendered.py helm/shoal/examples/laptop.yaml [--set a.b=1] [--replay FILE...]`
Every process is started with the command, arguments and environment of its container; its probes say when it is ready.
Exit code: the replay's; 1 if something does not become ready.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import helm_python as helm

from shoal_chart.chart import read_values, render
from shoal_chart.running import NotReady, RenderedCluster, summary


def main() -> int:
    given = _arguments()
    try:
        manifests = render(read_values(given.values, given.set))
        place = nullcontext(given.folder) if given.folder else tempfile.TemporaryDirectory(prefix="shoal-chart-")
        with place as folder:
            cluster = RenderedCluster(manifests, Path(folder).resolve())
            return asyncio.run(_run(cluster, given.replay))
    except (helm.HelmError, LookupError, NotReady, OSError) as error:
        sys.stderr.write(f"run_rendered: {error}\n")
        return 1


async def _run(cluster: RenderedCluster, replay: list[Path]) -> int:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    async with cluster:
        sys.stdout.write(summary(cluster) + "\n")
        sys.stdout.flush()
        if replay:
            command = ("-m", "shoal_ops", "replay", "--at", cluster.address("redirector", "grpc"), *map(str, replay))
            return await (await asyncio.create_subprocess_exec(sys.executable, *command)).wait()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await stop.wait()
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("values", nargs="*", type=Path, metavar="VALUES.yaml", help="later ones win")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="as Helm's")
    parser.add_argument("--replay", nargs="+", type=Path, default=[], metavar="FILE", help="event logs, then stop")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="for data and logs; kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
