"""Times away of one binding, as done ranges: at their bound, and beyond."""

from __future__ import annotations

from shoal_contract.errors import ResourceExhausted, from_wire
from shoal_slice_node.core.limits import AWAY_RANGES_MAX
from tests.fuzz.small_limits import patched

from .bulk_client import imports
from .core_driver import CoreDriver, bind, declare, every_second, publish, unbind, with_done


def test_a_binding_has_as_many_times_away_as_its_bound_allows() -> None:
    """One more is refused, and changes nothing; after some acks the key can be bound again."""
    core = CoreDriver()
    core.change(declare("q", "keeper"), bind("q", "k"), bind("keeper", "k"))
    core.change(publish("k", *[b""] * (2 * AWAY_RANGES_MAX)))
    with_done(core, "q", ["k"], every_second(AWAY_RANGES_MAX - 1))
    core.change(unbind("q", "k"), publish("k", b""), bind("q", "k"), publish("k", b""))
    core.change(unbind("q", "k"), publish("k", b""))
    (step,) = core.change(bind("q", "k")).steps
    error = from_wire(step.refusals[0].error)
    assert isinstance(error, ResourceExhausted) and error.limit == AWAY_RANGES_MAX, error
    core.check()
    session = core.session()
    core.attach(session, "q", messages=10)
    assert core.take(session)[0][1] == 1
    core.ack(session, "k", 1, 2)
    core.flush()
    assert not core.change(bind("q", "k")).steps[0].refusals
    core.check()


def test_imports_keep_to_that_bound() -> None:
    with patched({"AWAY_RANGES_MAX": 2}):
        core = CoreDriver()
        core.change(declare("q", "keeper"), bind("keeper", "k"), bind("q", "k"))
        refused = []
        for _ in range(4):
            core.change(publish("k", b""), unbind("q", "k"), publish("k", b""))
            refused += [from_wire(one.error) for one in core.change(imports({b"q": [b"k"]})).steps[0].refusals]
        assert refused and all(isinstance(one, ResourceExhausted) and one.limit == 2 for one in refused)
        core.check()
