"""`shoal ack` looks at the backlog first, and acks wherever that look does not say that there is nothing to ack."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

import shoal
from shoal_ops.commands import leases

PLAIN = shoal.QueueDescription("q", True, shoal.QueueOptions(), 0, 0, 0, 0, 0)
COUNT = 10_500
LISTED = 10_000
"""As many as a slice lists (DESCRIBE_LISTED_MAX in the slice node's core/limits.py)."""


class Broker:
    """Answers as a slice with `bound` keys does, of which it lists up to LISTED. `failure`: raised by describe."""

    def __init__(self, bound: dict[str, int], ended: dict[str, int], failure: shoal.ShoalError | None) -> None:
        self.bound, self.ended, self.failure = bound, ended, failure
        self.acked: list[shoal.Done] = []

    async def __aenter__(self) -> Broker:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def describe(self, queue: str, bindings: bool, deadline_s: float) -> shoal.QueueDescription:
        assert queue == "q" and bindings and deadline_s
        if self.failure is not None:
            raise self.failure
        both = [(key, 0, messages) for key, messages in self.bound.items()]
        both += [(key, 9, messages) for key, messages in self.ended.items()]
        listed = [shoal.BindingDescription(key, 1, 1, end, messages) for key, end, messages in both[:LISTED]]
        return replace(PLAIN, binding_count=len(self.bound), bindings=tuple(listed))

    async def backlogs(self, queues: list[str]) -> list[object]:
        return [SimpleNamespace(exists=True, silent=[])]

    async def ack(self, queue: str, done: list[shoal.Done]) -> None:
        self.acked += done
        for one in done:
            assert isinstance(one.key, str)
            self.bound[one.key] -= 1


async def ack(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    key: str,
    bound: dict[str, int],
    ended: dict[str, int] | None = None,
    failure: shoal.ShoalError | None = None,
) -> str:
    """Returns what the command says of an ack of one message; the message was acked, or this raises."""
    broker = Broker(bound, ended or {}, failure)
    monkeypatch.setattr(leases, "connect", lambda at: broker)
    monkeypatch.setattr(shoal, "Leases", lambda found: found)
    await leases.ack("here", "q", key, ["1"], as_json=False)
    assert [one.first for one in broker.acked] == [1]
    return capsys.readouterr().out.strip()


ACKED = "acked 1 message of {key}, as far as they were given out"


async def test_a_key_that_is_bound_and_not_listed_is_acked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was refused: the queue was said not to be bound to it."""
    bound = {f"k{number}": 1 for number in range(COUNT)}
    told = await ack(monkeypatch, capsys, f"k{COUNT - 1}", bound)
    assert told == ACKED.format(key=f"k{COUNT - 1}"), "the backlog is not known"
    told = await ack(monkeypatch, capsys, "k6", bound)
    assert told == ACKED.format(key="k6") + "; the backlog was 1 and is 0"


async def test_a_look_that_is_refused_is_no_reason_not_to_ack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for failure in (shoal.ResourceExhausted("too many done ranges"), shoal.Unavailable("a slice is silent")):
        assert await ack(monkeypatch, capsys, "k", {"k": 2}, failure=failure) == ACKED.format(key="k")


async def test_a_key_that_the_queue_is_not_bound_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(shoal.BadCall, match="queue q is not bound to l: there is nothing to ack"):
        await ack(monkeypatch, capsys, "l", {"k": 1}, ended={"m": 1})
