"""Real events, shortened, for replays."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

from shoal_ops.replay.run import Source

DATA = Path(__file__).parents[1] / "data"
CHANNEL_EVENTS = 800
CHURN_EVENTS = 2_000


def shortened(folder: Path) -> list[Source]:
    """Two sources in a folder: one as plain text, one packed."""
    channel, churn = folder / "channel.tsv", folder / "churn.tsv.gz"
    with gzip.open(DATA / "linux-channel.events.tsv.gz") as log:
        channel.write_bytes(b"".join(islice(log, CHANNEL_EVENTS)))
    with gzip.open(DATA / "rust-team.churn.tsv.gz") as log:
        churn.write_bytes(gzip.compress(b"".join(islice(log, CHURN_EVENTS))))
    return [Source(channel), Source(churn, publish_after_churn=True)]
