"""Queues whose bindings have very many done ranges: an export's pages end within them, and a store's tables are read
with one binding's ranges in memory at a time.
"""

from __future__ import annotations

import pytest

from shoal_pipeline.bulk.exporting import _rows
from shoal_pipeline.snapshot.tables import rows_of
from shoal_slice_node.core.read.memberships import export_pages
from tests.slice_node.core_driver import CoreDriver, bind, declare, every_second, publish, unbind, with_done

KEYS = [f"k{number:02}" for number in range(30)]
LEFT = KEYS[:10]
RANGES = 100
MESSAGES = 2 * RANGES + 10


@pytest.fixture
def core() -> CoreDriver:
    """`q` has done ranges in all of its bindings, and has left some of their keys."""
    core = CoreDriver()
    core.change(declare("p", "q", "r"), bind("p", *KEYS[:2]), bind("q", *KEYS), bind("r", "k00"))
    for key in KEYS:
        core.change(publish(key, *[b""] * MESSAGES))
    with_done(core, "q", KEYS, every_second(RANGES))
    core.change(unbind("q", *LEFT))
    return core


def test_pages_that_end_within_a_queue_make_the_same_rows(core: CoreDriver) -> None:
    whole, small = (list(export_pages(core.tables, 7, 1_000, size)) for size in (1 << 20, 5 * RANGES * 20))
    assert len(whole) == 1 and len(small) > len(KEYS) // 5
    (expected,) = (_rows("s01", page, False).to_pylist() for page in whole)
    found = [row for page in small for row in _rows("s01", page, False).to_pylist()]
    assert found == expected
    of_q = {row["key"].decode(): row for row in found if row["queue"] == b"q"}
    done = [{"first": first, "to": to} for first, to in every_second(RANGES)]
    assert of_q.keys() == set(KEYS) and all(row["done"] == done for row in of_q.values())
    assert {key for key, row in of_q.items() if row["end"]} == set(LEFT)


def test_a_table_of_bindings_is_read_one_binding_at_a_time(core: CoreDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    read, detail = 0, core.tables.detail
    get, scan = detail.get, detail.scan

    def counted_get(key: bytes) -> bytes | None:
        nonlocal read
        found = get(key)
        read += found is not None
        return found

    def counted_scan(prefix: bytes):  # type: ignore[no-untyped-def]
        nonlocal read
        for found in scan(prefix):
            read += 1
            yield found

    monkeypatch.setattr(detail, "get", counted_get)
    monkeypatch.setattr(detail, "scan", counted_scan)
    rows = []
    for row in rows_of(core.tables, "bindings", 1, 1 << 32):
        rows.append(row)
        if row[5] is None:
            assert read <= sum(row[0] == "q" for row in rows) or row[0] == "r"
    assert read == 2 * len(KEYS) - len(LEFT)
    of_q = sorted((row[1], row[5], row[6]) for row in rows if row[0] == "q")
    ended = MESSAGES + 1
    assert of_q == [(key, ended if key in LEFT else None, MESSAGES - RANGES) for key in KEYS]
    assert [row[0] for row in rows] == ["p"] * 2 + ["q"] * len(KEYS) + ["r"]
