"""Measures memory and CPU of a process and all its children, by role, and notes which slices were started again."""

from __future__ import annotations

import time
from collections import defaultdict

import psutil

_ROLES = {"shoal_slice_node": "slices", "shoal_redirector": "redirector"}


class Usage:
    """Measures the processes of `roots`: (role, pid). A child with a role of its own counts there, others count with
    their parents; each counts once."""

    def __init__(self) -> None:
        self.roots: list[tuple[str, int]] = []
        self._used_s: dict[int, float] = {}
        self._at_s = time.monotonic()
        self._nodes: dict[str, int] = {}
        """The pid of each slice's node."""
        self.restarts = 0

    def look(self) -> dict[str, float]:
        """Returns the points of plots: `<role> CPU %` (100: one core) since the last call, `<role> MB` resident."""
        now_s = time.monotonic()
        width_s = max(1e-3, now_s - self._at_s)
        self._at_s = now_s
        found: dict[str, float] = defaultdict(float)
        used_s: dict[int, float] = {}
        for role, process in self._processes():
            try:
                with process.oneshot():
                    times, memory = process.cpu_times(), process.memory_info().rss
            except psutil.Error:
                continue
            used_s[process.pid] = times.user + times.system
            before_s = self._used_s.get(process.pid, used_s[process.pid])
            found[f"{role} CPU %"] += 100 * (used_s[process.pid] - before_s) / width_s
            found[f"{role} MB"] += memory / 1e6
        self._used_s = used_s
        return found

    def _processes(self) -> list[tuple[str, psutil.Process]]:
        found: list[tuple[str, psutil.Process]] = []
        counted: set[int] = set()
        for role, pid in self.roots:
            try:
                root = psutil.Process(pid)
                family = [root, *root.children(recursive=True)]
            except psutil.Error:
                continue
            roles: dict[int, str] = {pid: role}
            for process in family:
                if process.pid in counted:
                    continue
                counted.add(process.pid)
                try:
                    command, parent = process.cmdline(), process.ppid()
                except psutil.Error:
                    continue
                if process.pid != pid:
                    roles[process.pid] = self._role(command, roles.get(parent, role))
                if "shoal_slice_node" in command and "--slice" in command:
                    self._note(command[command.index("--slice") + 1], process.pid)
                found.append((roles[process.pid], process))
        return found

    @staticmethod
    def _role(command: list[str], of_parent: str) -> str:
        return next((role for module, role in _ROLES.items() if module in command), of_parent)

    def _note(self, slice_name: str, pid: int) -> None:
        before = self._nodes.setdefault(slice_name, pid)
        if before != pid:
            self._nodes[slice_name] = pid
            self.restarts += 1
