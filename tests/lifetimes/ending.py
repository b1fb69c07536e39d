"""Ends a run: what is owed must come now."""

from __future__ import annotations

from random import Random

from tests.lifetimes.crashes import Crashes


class Ending(Crashes):
    """Adds the end to a run."""

    def finish(self) -> None:
        """Checks that all that is owed comes, or is told as a gap."""
        for session in list(self.sessions):
            self.close(session)
        self.open()
        for name in list(self.model.queues):
            self.attach(self.sessions[0], name)
        bindings = [(name, key) for name, key, _ in self.model.bindings()]
        rounds = 20 if self.is_prompt else 300
        while rounds and (rounds % 20 or any(self.model.left(*one) for one in bindings)):
            rounds -= 1
            self.take(self.sessions[0])
            self.ack(self.sessions[0], Random(0), 1)
            self.flush()
            self.tick()
        for name, key, _ in self.model.bindings():
            left = self.model.left(name, key)
            gone = {offset for offset in left if self.model.is_gone(key, offset)}
            assert not left - gone, f"{name} is owed {key} {sorted(left - gone)} for ever"
            assert not gone, f"{name} was not told that {key} {sorted(gone)} are gone"
        self.core.check()
