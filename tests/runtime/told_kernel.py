"""A kernel that tells what a test says, and one client of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shoal_runtime.connections import Connection
from shoal_runtime.unread import Unread

PEER = "ipv4:127.0.0.1:1"


WHERE = ("127.0.0.1", 1)


class Kernel:
    """One connection of WHERE, as it is told. `look` may do something while it is looked."""

    def __init__(self, taken_bytes: int, cookie: int = 1) -> None:
        self.kernel_bytes = 0
        self.taken_bytes = taken_bytes
        self.cookie = cookie
        self.meanwhile: Callable[[], None] = lambda: None

    def look(self, ports: object, known: object) -> Iterator[Connection]:
        self.meanwhile()
        yield Connection(3, self.cookie, WHERE, self.taken_bytes, 0, self.kernel_bytes)


def told(kernel: Kernel) -> Unread:
    unread = Unread()
    unread._connections = kernel  # type: ignore[assignment]
    return unread
