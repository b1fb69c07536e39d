"""Asks a server process to stop: at once, or after a time in which it still serves but reports that it is not ready.

The sender of its requests (a Service of Kubernetes, a load balancer) learns of the end a little later. Until then new
requests still come, and would find a port that is already closed.
"""

from __future__ import annotations

import asyncio
import signal


class Stopping(asyncio.Event):
    """Is an event that is set once the process is to close. `asked`: the process is to close, now or in up to `drain_s`
    seconds, so it is not ready."""

    def __init__(self, drain_s: float = 0.0) -> None:
        super().__init__()
        self._drain_s = drain_s
        self.asked = False

    def ask(self) -> None:
        """Begins to drain. The second call stops the process at once."""
        if self.asked or not self._drain_s:
            self.set()
            return
        self.asked = True
        asyncio.get_running_loop().call_later(self._drain_s, self.set)

    def set(self) -> None:
        self.asked = True
        super().set()

    def on_signals(self) -> None:
        """Installs the signal handlers: SIGTERM asks to stop; SIGINT, which a person sends, stops at once."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.ask)
        loop.add_signal_handler(signal.SIGINT, self.set)
