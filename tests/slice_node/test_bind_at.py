"""Binds at an offset: the outcome says which keys were bound before, at which nothing changes."""

from __future__ import annotations

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply import binds as apply_binds
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State

from .core_driver import CoreDriver, bind, declare, publish


def at_offset(offset: int, **keys: list[str]) -> wire.Step:
    """Each queue with its keys."""
    binds = wire.Binds(start=wire.START_OFFSET, start_value=offset)
    for queue, some in keys.items():
        binds.queues.append(queue.encode())
        binds.key_counts.append(len(some))
        binds.keys.extend(key.encode() for key in some)
    return wire.Step(binds=binds)


def noted_pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many keys each step binds, from now on."""
    found: list[int] = []
    before = apply_binds.bind_resolved

    def resolved(state: State, queue: Queue, names: list[bytes], begin: apply_binds.Begin) -> list[int]:
        found.append(len(names))
        return before(state, queue, names, begin)

    monkeypatch.setattr(apply_binds, "bind_resolved", resolved)
    return found


@pytest.mark.parametrize(("size", "expected"), [(1_000, [3, 2]), (2, [2, 1, 2])], ids=["in one step", "in pieces"])
def test_keys_that_were_bound_before_are_named_by_their_place(
    size: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_binds, "APPLIED_PER_STEP", size)
    core = CoreDriver()
    core.change(declare("q", "p", "keeps"), bind("keeps", "a", "b", "c"))
    for _ in range(9):
        core.change(publish("a", b"1"), publish("b", b"1"), publish("c", b"1"))
    core.change(bind("q", "b"), bind("p", "a"))
    pieces = noted_pieces(monkeypatch)
    step = core.change(at_offset(5, none=["a"], q=["a", "b", "c"], p=["a", "b"])).steps[0]
    assert pieces == expected
    assert [refusal.request for refusal in step.refusals] == [0]
    assert list(step.offsets) == [0, 5, 10, 5, 10, 5]
    assert list(step.bound_before) == [2, 4]
    again = core.change(at_offset(99, q=["a", "b", "c"])).steps[0]
    assert (list(again.offsets), list(again.bound_before)) == ([5, 10, 5], [0, 1, 2])
    twice = core.change(at_offset(5, p=["c", "c"])).steps[0]
    assert list(twice.bound_before) == [1], "the first of them made the binding"
    core.check()


def test_other_binds_name_none() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "a"))
    assert not core.change(bind("q", "a", start=wire.START_EARLIEST)).steps[0].bound_before
