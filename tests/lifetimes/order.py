"""Checks that messages come in the order of their key, as long as one session alone consumes a queue: competing ones
get what others give back whenever it comes back."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class _Line:
    """Keeps what an attachment had of one key, and what may come at any time."""

    last: int = 0
    had: set[int] = field(default_factory=set)


class Order:
    """Keeps the attachments of each queue, by the numbers of their sessions. `_shared`: queues that several sessions
    consumed at a time, since none did: what one of them never read comes to the others later."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[int, dict[str, _Line]]] = {}
        self._shared: set[str] = set()

    def begins(self, name: str, session: int, anytime: dict[str, set[int]]) -> None:
        """Notes that a session consumes a queue. `anytime`: what came back before, and waits, by key."""
        lines = self._lines.setdefault(name, {})
        lines[session] = {key: _Line(had=set(offsets)) for key, offsets in anytime.items()}
        if len(lines) > 1:
            self._shared.add(name)

    def ends(self, name: str, session: int) -> None:
        lines = self._lines.get(name, {})
        lines.pop(session, None)
        if not lines:
            self._shared.discard(name)

    def given(self, name: str, session: int, key: str, offset: int) -> None:
        """Checks a message that comes: one that this attachment never had comes behind all that it had."""
        line = self._lines[name][session].setdefault(key, _Line())
        if name not in self._shared and offset not in line.had:
            assert offset > line.last, f"{name} gets {key} {offset} after {line.last}"
            line.last = offset
        line.had.add(offset)

    def forget(self) -> None:
        """Notes a crash: nothing consumes."""
        self._lines.clear()
        self._shared.clear()
