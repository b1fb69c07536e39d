"""What was delivered before is marked as such, whatever came in between; what a binding never had is not."""

from __future__ import annotations

from shoal_contract.wire import slice_pb2 as wire

from .core_driver import CoreDriver, bind, declare, publish, purge, unbind

MESSAGES = 4


def marks(deliveries: list[wire.Delivery]) -> list[tuple[int, int]]:
    """(offset, times delivered before)."""
    return [(offset, one.redelivered) for one in deliveries for offset in range(one.low, one.to)]


def published(core: CoreDriver, messages: int = MESSAGES) -> None:
    for _ in range(messages):
        core.change(publish("k", b"a"))


def one_queue() -> CoreDriver:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    published(core)
    return core


def given_to_another(core: CoreDriver) -> list[tuple[int, int]]:
    """Marks of what a session gets that ends without an ack."""
    session = core.session()
    core.attach(session, "q")
    found = marks(core.deliveries(session))
    core.dispatcher.close(session)
    core.pump()
    assert not core.dispatcher.feeds
    return found


def test_a_short_pull_forgets_nothing_of_what_was_delivered_before_it() -> None:
    core = one_queue()
    assert given_to_another(core) == [(offset, 0) for offset in (1, 2, 3, 4)]
    core.pull(core.session(), "q", 1, lease_ms=100)
    core.now_ms += 200
    core.end_leases()
    core.pump()
    assert given_to_another(core) == [(offset, 1) for offset in (1, 2, 3, 4)]


def test_what_comes_after_a_purge_is_new() -> None:
    core = one_queue()
    given_to_another(core)
    core.change(purge("q"))
    published(core)
    assert given_to_another(core) == [(offset, 0) for offset in (5, 6, 7, 8)]
    core.pull(core.session(), "q", 1, lease_ms=100)
    core.now_ms += 200
    core.end_leases()
    core.pump()
    assert given_to_another(core) == [(offset, 1) for offset in (5, 6, 7, 8)]


def test_a_binding_that_begins_anew_below_has_had_nothing() -> None:
    core = CoreDriver()
    core.change(declare("q", "keeps"), bind("keeps", "k"))
    published(core)
    core.change(bind("q", "k"))
    published(core, 1)
    assert given_to_another(core) == [(5, 0)]
    core.change(unbind("q", "k", discard=True))
    core.change(bind("q", "k", start=wire.START_EARLIEST))
    core.pull(core.session(), "q", 1, lease_ms=100)
    core.now_ms += 200
    core.end_leases()
    core.pump()
    assert given_to_another(core) == [(1, 1), (2, 0), (3, 0), (4, 0), (5, 0)]
