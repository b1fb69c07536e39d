"""Pages of an export are bounded by bytes, too, and so is what is read for one. A queue with 270 bindings of 4,000 done
ranges made each export of its slice fail, and the process that read it took half a MB for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_contract.limits import FRAME_BYTES_MAX, NAME_BYTES_MAX
from shoal_contract.wire import bulk_pb2 as wire
from shoal_slice_node.core.delivery_counts import Counted, DeliveryCounts
from shoal_slice_node.core.limits import BUCKET_ENTRIES_MEAN, DONE_RANGES_MAX
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.read.memberships import export_pages, memberships_of
from shoal_slice_node.core.rows.detail_row import Detail, detail_key, encode_detail
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.processes.limits import EXPORT_PAGE_BYTES, EXPORT_PAGE_MEMBERSHIPS

from .bulk_client import live_memberships
from .core_driver import CoreDriver, bind, declare, every_second, publish, unbind, with_done

KEYS = [f"k{number:02}-" + "x" * (NAME_BYTES_MAX - 4) for number in range(100)]
FAR = [1 << 62 | offset for pair in every_second(DONE_RANGES_MAX) for offset in pair]
MEMBERSHIP_BYTES = 20 * DONE_RANGES_MAX + 2 * NAME_BYTES_MAX + 100

Row = tuple[bytes, bytes, int, int, int, list[int]]


def pages_of(core: CoreDriver) -> Iterator[wire.ExportResponse]:
    return export_pages(core.tables, 7, EXPORT_PAGE_MEMBERSHIPS, EXPORT_PAGE_BYTES)


def rows_of(pages: list[wire.ExportResponse]) -> list[Row]:
    """Queue, key, start, cursor, end and done ranges of each membership."""
    rows: list[Row] = []
    for page in pages:
        assert page.lsn == 7
        queues = [queue for queue, count in zip(page.queues, page.key_counts, strict=True) for _ in range(count)]
        done = iter(page.done)
        columns = zip(queues, page.keys, page.starts, page.cursors, page.ends, page.done_counts, strict=True)
        for queue, key, start, cursor, end, count in columns:
            rows.append((queue, key, start, cursor, end, [next(done) for _ in range(2 * count)]))
        assert next(done, None) is None
    return rows


def with_far(core: CoreDriver, queue: str, ended: bool = False) -> None:
    """Each binding of the queue to one of KEYS has the most done ranges, of offsets that take the most bytes. What the
    keys have does not matter here."""
    found = core.state.load_queue(queue.encode())
    assert found is not None
    for key in KEYS:
        key_id = (core.tables.key.get(core.state.full_name(key.encode())) or b"")[ID]
        detail = Detail(1 << 62, 1 << 62, (1 << 63) - 1 if ended else 0, Ranges.of_sorted(FAR))
        core.tables.detail.put(detail_key(found.id, key_id), encode_detail(detail))
        if ended:
            found.bucket(key_id).pop(key_id)
            found.bindings -= 1
        found.details += 1
    found.save()


@pytest.mark.parametrize("ended", [False, True])
def test_no_page_is_larger_than_a_message_may_be(ended: bool) -> None:
    core = CoreDriver()
    core.change(declare("before", "q", "r"), bind("before", "a"), bind("q", *KEYS), bind("r", "a", "b"))
    with_far(core, "q", ended)
    pages = list(pages_of(core))
    assert max(page.ByteSize() for page in pages) <= EXPORT_PAGE_BYTES + MEMBERSHIP_BYTES < FRAME_BYTES_MAX
    assert len(pages) <= 2 * len(KEYS) * MEMBERSHIP_BYTES // EXPORT_PAGE_BYTES + 1
    rows = rows_of(pages)
    assert [row[:2] for row in rows if row[0] != b"q"] == [(b"before", b"a"), (b"r", b"a"), (b"r", b"b")]
    of_q = [row for row in rows if row[0] == b"q"]
    assert sorted(row[1] for row in of_q) == [key.encode() for key in KEYS]
    assert all(row[5] == FAR and bool(row[4]) == ended for row in of_q)


def test_names_alone_fill_no_page_beyond_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    core = CoreDriver()
    queues = [f"{number:03}" + "q" * (NAME_BYTES_MAX - 3) for number in range(100)]
    for queue in queues:
        core.change(declare(queue), bind(queue, *KEYS[:5]))
    pages = list(export_pages(core.tables, 7, EXPORT_PAGE_MEMBERSHIPS, 10_000))
    assert max(page.ByteSize() for page in pages) <= 10_000 + MEMBERSHIP_BYTES - 20 * DONE_RANGES_MAX
    assert live_memberships(pages) == {queue.encode(): {key.encode() for key in KEYS[:5]} for queue in queues}


def test_a_queue_that_fills_its_page_is_not_named_in_the_next_one() -> None:
    core = CoreDriver()
    core.change(declare("empty", "q", "last"), bind("q", "a", "b", "c", "d"))
    pages = list(export_pages(core.tables, 7, 2, EXPORT_PAGE_BYTES))
    assert [(list(page.queues), list(page.key_counts)) for page in pages] == [
        ([b"empty", b"q"], [0, 1]),
        ([b"q"], [2]),
        ([b"q", b"last"], [1, 0]),
        ([], []),
    ]


def test_what_is_read_for_a_page_is_bounded_by_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    core = CoreDriver()
    keys, many, some = [f"{number:04}" for number in range(2_000)], KEYS[:40], KEYS[40:60]
    core.change(declare("q"), bind("q", *many, *some))
    for first in range(0, len(keys), 900):
        core.change(bind("q", *keys[first : first + 900]))
    for key in (*many, *some):
        core.change(*(publish(key, *[b""] * 1_000) for _ in range(4)))
    with_done(core, "q", [*many, *some], every_second(1_900))
    core.change(unbind("q", *some))
    core.check()
    read = {"detail": 0, "membership": 0}
    for name in read:
        table = getattr(core.tables, name)

        def get(key: bytes, name: str = name, get=table.get) -> bytes | None:  # type: ignore[no-untyped-def]
            found: bytes | None = get(key)
            read[name] += found is not None
            return found

        def scan(prefix: bytes, name: str = name, scan=table.scan):  # type: ignore[no-untyped-def]
            for found in scan(prefix):
                read[name] += 1
                yield found

        monkeypatch.setattr(table, "get", get)
        monkeypatch.setattr(table, "scan", scan)
    found: list[wire.ExportResponse] = []
    for page in export_pages(core.tables, 7, 100, 200_000):
        live = sum(not end for end in page.ends)
        assert read["membership"] <= live // (BUCKET_ENTRIES_MEAN // 4) + 2
        assert read["detail"] <= 200_000 // (1_900 * 20) + 2 + len(many) * any(page.ends)
        read.update(detail=0, membership=0)
        found.append(page)
    rows = rows_of(found)
    assert len(rows) == len(keys) + len(many) + len(some)
    done = [offset for pair in every_second(1_900) for offset in pair]
    assert {row[1].decode() for row in rows if row[5] == done and not row[4]} == set(many)
    assert {row[1].decode() for row in rows if row[5] == done and row[4]} == set(some)


class KeptRow(bytes):
    """A row that counts how many there are."""

    kept = most = 0

    def __init__(self, _: bytes) -> None:
        KeptRow.kept += 1
        KeptRow.most = max(KeptRow.most, KeptRow.kept)

    def __del__(self) -> None:
        KeptRow.kept -= 1


def test_no_detail_row_is_kept_for_its_counts_of_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with counts of deliveries and without done ranges may have 320 KB, and takes nothing in a page."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", *KEYS))
    found = core.state.load_queue(b"q")
    assert found is not None
    counts = DeliveryCounts([Counted(offset, offset + 1, offset) for offset in range(2, 102)])
    for key in KEYS:
        key_id = (core.tables.key.get(core.state.full_name(key.encode())) or b"")[ID]
        core.tables.detail.put(detail_key(found.id, key_id), encode_detail(Detail(1, 1, 0, Ranges(), counts)))
        found.details += 1
    found.save()
    detail = core.tables.detail
    get, scan = detail.get, detail.scan
    monkeypatch.setattr(detail, "get", lambda key: KeptRow(get(key) or b""))
    monkeypatch.setattr(detail, "scan", lambda prefix: ((key, KeptRow(row)) for key, row in scan(prefix)))
    (page,) = pages_of(core)
    assert len(page.keys) == len(KEYS) and not any(page.done_counts)
    assert 0 < KeptRow.most <= 3


def test_an_export_keeps_one_bucket_at_a_time() -> None:
    """All those of a large queue take gigabytes."""
    core = CoreDriver()
    core.change(declare("q"))
    for first in range(0, 3_000, 900):
        core.change(bind("q", *(f"k{number}" for number in range(first, min(3_000, first + 900)))))
    queue = core.state.load_queue(b"q")
    assert queue is not None and queue.extra_buckets > 20
    kept = [len(queue._buckets) for _ in memberships_of(core.tables, queue)]
    assert len(kept) == 3_000 and max(kept) <= 2, "the first one is part of the queue's row"
