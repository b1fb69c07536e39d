"""`shoal pull` where a slice does not answer: what the others gave is what it took."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import shoal
import shoal.testing
from shoal_ops.commands import verbs


@pytest.mark.parametrize("jobs", [3, 0])
async def test_a_pull_ends_with_what_it_has_once_a_slice_answers_no_more(
    jobs: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It told an error behind messages that were printed and acked. Where there are none it does: the slice may have
    some."""
    cluster = shoal.testing.FakeCluster(["s01", "s02"])
    tell_pulled = verbs.tell_pulled

    def silence() -> None:
        cluster.slices["s02"].ignored = {"pull"}

    async def told(found: Sequence[shoal.Message], as_json: bool) -> None:
        silence()
        await tell_pulled(found, as_json)

    monkeypatch.setattr(verbs, "tell_pulled", told)
    monkeypatch.setattr(verbs, "connect", lambda _: cluster.connect(deadline_s=2))
    async with cluster.connect() as broker:
        await broker.declare("q")
        await broker.bind("q", [cluster.key_of("s01"), cluster.key_of("s02")])
        for _ in range(jobs):
            await broker.publish(cluster.key_of("s01"), b"job")
        if jobs:
            await verbs.pull("", "q", 10, False, as_json=True)
        else:
            silence()
            with pytest.raises(shoal.OutcomeUnknown):
                await verbs.pull("", "q", 10, False, as_json=True)
        assert capsys.readouterr().out.count('"body": "job"') == jobs
        assert (await broker.describe("q")).messages == 0, "what was printed is acked"
