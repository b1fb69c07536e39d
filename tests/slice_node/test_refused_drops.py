"""Drops of unused queues that are refused, one after the other: they keep no queue silent."""

from __future__ import annotations

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.node.requests import pull
from shoal_slice_node.core.turns import finish

from .core_driver import CoreDriver, drop_if, publish
from .drop_steps import exists, item, populated, refusal


def flood(core: CoreDriver, found: list[Effects], incarnation: int = 0) -> wire.Step:
    """One more drop of `q0` begins to be written before the last one is applied, and is refused: the queue has a
    backlog, or it is another."""
    step = drop_if("q0", unused=True, empty=True)
    if incarnation:
        step.drops.incarnations.append(incarnation)
    core.node.commit.submit(item(wire.Change(steps=[step]).SerializeToString(), found))
    core.node.commit.gather(core.wall_ms)
    if core.node.commit.to_apply:
        core.node.commit.step()
    core.node.commit.written()
    return step


def pulled(core: CoreDriver) -> int:
    asked = wire.Pull(queue=b"q0", lease_ms=1_000)
    return len(finish(pull(core.node, core.session(), asked, 0, 1_000).whole()).pulled.deliveries)


@pytest.mark.parametrize("how", ["attach", "pull"])
def test_drops_that_are_refused_one_after_the_other_keep_no_queue_silent(how: str) -> None:
    core, _ = populated(1)
    core.change(publish("k0", b"a"))
    found: list[Effects] = []
    flood(core, found)
    session = core.session()
    if how == "attach":
        core.attach(session, "q0")
    else:
        assert pulled(core) == 0
    flood(core, found)
    flood(core, found)
    assert not core.dispatcher.registry.ending
    if how == "attach":
        assert [body for _, _, body in core.take(session)] == [b"a"]
    else:
        assert pulled(core) == 1
    while core.node.commit.to_apply:
        core.node.commit.step()
    assert exists(core, "q0") and len(found) == 3
    core.now_ms += 60_000
    core.end_leases()
    core.dispatcher.close(session)
    core.maintain()
    assert refusal(core.change(drop_if("q0", unused=True))) is None, "in the end nothing uses it"


def test_a_drop_of_another_incarnation_does_not_touch_the_queue() -> None:
    core, _ = populated(1)
    core.change(publish("k0", b"a"))
    flood(core, [], incarnation=12_345)
    assert not core.dispatcher.registry.ending and pulled(core) == 1
