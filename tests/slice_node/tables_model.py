"""The conformance suite of tables: seeded random changes and reads on any Tables, compared with plain dicts and sets.

Used by test_tables_conformance for every implementation. The model does what tables.py says in the plainest way.
"""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from shoal_slice_node.core.limits import LOG_HEAD_BYTES_MIN, ROW_KEY_BYTES_MAX
from shoal_slice_node.core.tables.tables import GROUP_TABLES, LOCAL_TABLES, ROW_TABLES, Groups, Rows, Tables

KEYS = [bytes([0, part, 0, 0, 0, 0, 0, number]) for part in (1, 2) for number in range(7)]
MEMBERS = [number.to_bytes(8, "big") for number in range(1, 40)]
ROW_KEYS = [prefix + suffix for prefix in KEYS[:5] for suffix in KEYS[:6]] + [b"k" + key for key in KEYS]


class Model:
    """What the tables must hold."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[bytes, bytes]] = {name: {} for name in (*ROW_TABLES, *LOCAL_TABLES)}
        self.groups: dict[str, dict[bytes, set[bytes]]] = {name: {} for name in GROUP_TABLES}
        self.logs: dict[bytes, dict[int, bytes]] = {}
        self.low: dict[bytes, int] = {}
        self.head: dict[bytes, int] = {}
        self.vanished = 0
        self.undone: set[bytes] = set()  # bindings groups emptied without a trace: the core's own business


class TablesDriver:
    """Random steps on `tables` and the model together; `check_*` compare."""

    def __init__(self, tables: Tables, seed: int, row_tables: tuple[str, ...] = (*ROW_TABLES, *LOCAL_TABLES)) -> None:
        self.tables = tables
        self.random = Random(seed)
        self.model = Model()
        self.row_tables = row_tables

    def steps(self, count: int) -> None:
        actions = (self._row, self._row, self._group, self._group, self._group, self._log, self._read)
        for _ in range(count):
            self.random.choice(actions)()

    def check_all(self) -> None:
        """Every table, whole."""
        for name in self.row_tables:
            rows: Rows = getattr(self.tables, name)
            model = self.model.rows[name]
            assert list(rows.scan()) == sorted(model.items()), name
            assert [rows.get(key) for key in ROW_KEYS] == [model.get(key) for key in ROW_KEYS], name
        for name in GROUP_TABLES:
            groups: Groups = getattr(self.tables, name)
            want = [(group, member) for group, members in self.model.groups[name].items() for member in members]
            assert list(groups.scan()) == sorted(want), name
        logs = [(key_id, first, row) for key_id, log in self.model.logs.items() for first, row in log.items()]
        assert list(self.tables.log.scan()) == sorted(logs)

    def check_unfit_keys(self) -> None:
        """A key that LMDB can't have is one that no table has."""
        for name in self.row_tables:
            rows: Rows = getattr(self.tables, name)
            for key in (b"", b"k" * (ROW_KEY_BYTES_MAX + 1)):
                rows.delete(key)
                assert rows.get(key) is None
                for change in (rows.put, rows.insert):
                    with pytest.raises(AssertionError):
                        change(key, b"value")
            longest = b"k" * ROW_KEY_BYTES_MAX
            rows.put(longest, b"value")
            assert rows.get(longest) == b"value"
            rows.delete(longest)
        for name in GROUP_TABLES:
            groups: Groups = getattr(self.tables, name)
            assert groups.count(b"nobody's") == 0 and groups.members(b"nobody's") == ([], b"")

    def _row(self) -> None:
        name = self.random.choice(self.row_tables)
        rows: Rows = getattr(self.tables, name)
        model = self.model.rows[name]
        key = self.random.choice(ROW_KEYS)
        value = self.random.randbytes(self.random.choice((1, 9, 60, 1900)))
        action = self.random.random()
        if action < 0.4:
            rows.delete(key)
            model.pop(key, None)
        elif key not in model and action < 0.8:
            rows.insert(key, value)
            model[key] = value
        else:
            rows.put(key, value)
            model[key] = value
        assert rows.get(key) == model.get(key)

    def _group(self) -> None:
        name = self.random.choice(GROUP_TABLES)
        groups: Groups = getattr(self.tables, name)
        group, member = self.random.choice(KEYS), self.random.choice(MEMBERS)
        if self.random.random() < 0.6:  # most groups stay small
            member = MEMBERS[member[7] % 2]
        members = self.model.groups[name].setdefault(group, set())
        if member in members:
            groups.remove(group, member)
            members.remove(member)
        else:
            groups.add(group, member)
            members.add(member)
        assert groups.count(group) == len(members)

    def _log(self) -> None:
        model, key_id = self.model, self.random.choice(KEYS)
        log = model.logs.setdefault(key_id, {})
        low, head = model.low.get(key_id, 1), model.head.get(key_id, 1)
        if self.random.random() < 0.3:
            new_low = self.random.choice([*(first for first in log if first >= low), head])
            self.tables.log.trim(key_id, low, new_low)
            model.low[key_id] = max(low, new_low)
            model.logs[key_id] = {first: row for first, row in log.items() if first >= new_low}
            return
        row = self.random.randbytes(self.random.choice((1, 30, 200, 4000, 4001, 30_000)))
        self.tables.log.append(key_id, head, row)
        log[head] = row
        model.head[key_id] = head + self.random.choice((1, 2, 300))

    def _read(self) -> None:
        self._read_rows()
        self._read_group()
        self._read_log()

    def _read_rows(self) -> None:
        name = self.random.choice(self.row_tables)
        rows: Rows = getattr(self.tables, name)
        prefix = self.random.choice((b"", b"k", *KEYS[:5], KEYS[0] + KEYS[1][:3]))
        start = self.random.choice((b"", self.random.choice(ROW_KEYS)))
        want = [item for item in sorted(self.model.rows[name].items()) if item[0] >= start]
        want = [item for item in want if item[0].startswith(prefix)]
        limit = self.random.choice((1, 3, 1000))
        assert list(islice(rows.scan(prefix, start), limit)) == want[:limit]
        below = [key for key, _ in islice(rows.scan_below(prefix, start), limit)]
        assert rows.keys_below(prefix, start, limit) == below

    def _read_group(self) -> None:
        name = self.random.choice(GROUP_TABLES)
        groups: Groups = getattr(self.tables, name)
        group = self.random.choice(KEYS)
        after = self.random.choice((b"", self.random.choice(MEMBERS)))
        limit = self.random.choice((1, 2, 5, 1000))
        want = sorted(member for member in self.model.groups[name].get(group, ()) if member > after)
        found, to = groups.members(group, after, limit)
        while to and len(found) < limit:
            assert not found or found[-1] <= to
            page, to = groups.members(group, to, limit - len(found))
            found += page
        assert found == want[:limit] and (to or len(want) <= limit)
        member = self.random.choice(MEMBERS)
        assert groups.has(group, member) == (member in self.model.groups[name].get(group, ()))

    def _read_log(self) -> None:
        key_id = self.random.choice(KEYS)
        low, head = self.model.low.get(key_id, 1), self.model.head.get(key_id, 1)
        offset = self.random.randint(0, head + 1)
        log = sorted(self.model.logs.get(key_id, {}).items())
        begin = max((index for index, (first, _) in enumerate(log) if first <= offset), default=0)
        assert list(self.tables.log.read(key_id, low, offset)) == log[begin:]
        heads = list(self.tables.log.heads(key_id, low, offset))
        assert [first for first, _ in heads] == [first for first, _ in log[begin:]]
        for (_, start), (_, row) in zip(heads, log[begin:], strict=True):
            assert row.startswith(start) and len(start) >= min(len(row), LOG_HEAD_BYTES_MIN)
