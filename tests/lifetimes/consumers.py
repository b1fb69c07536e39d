"""Lets sessions consume: they attach, read, ack and give back; the model checks all that comes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.acks_in_flight import NackTerms
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.turns import Source, finish
from tests.lifetimes.bindings import Binding
from tests.lifetimes.world import NAMES, World
from tests.slice_node.core_driver import bodies_of


class Consumers(World):
    """Adds sessions to a run. `windows`: of each session and queue, in messages."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        super().__init__(limits)
        self.windows: dict[tuple[int, str], int] = {}
        self.open()

    def open(self) -> None:
        session = self.core.session()
        self.sessions.append(session)
        self.gaps[session.number] = set()

    def attach(self, session: Session, name: str, window: int = 100) -> None:
        self.detach(session, name)
        before = self.consumers(name)
        handle = NAMES.index(name) + 1
        request = wire.Attach(queues=[name.encode()], handles=[handle], window_messages=window, window_bytes=1 << 20)
        finish(requests.attach(self.core.node, session, request)())
        assert handle in session.attachments, f"{name} was not attached"
        for lost in (one for one in before if handle not in one.attachments):
            self._leaves(lost, name, counts=False)
        queue = self.model.queues[name]
        self.order.begins(name, session.number, {key: one.undecided | one.rests.keys() for key, one in queue.items()})
        self.windows[session.number, name] = window
        self.look()

    def detach(self, session: Session, name: str) -> None:
        self.look()
        self.core.dispatcher.detach(session, NAMES.index(name) + 1)
        self._leaves(session, name)

    def close(self, session: Session) -> None:
        self.look()
        self.sessions.remove(session)
        self.core.node.close_session(session, Source("lifetimes", session.number))
        for name in NAMES:
            self._leaves(session, name)

    def _leaves(self, session: Session, name: str, counts: bool = True) -> None:
        """Notes that a session consumes a queue no more. `counts`: not if another one took it."""
        if not self.is_prompt:
            self.core.pump()  # It ends in turns; time does not go on before.
        for binding in self.model.queues.get(name, {}).values():
            binding.left(session.number, self.core.now_ms, counts)
        self.gaps[session.number] = {told for told in self.gaps[session.number] if told[0] != name}
        self.order.ends(name, session.number)

    def take(self, session: Session) -> None:
        """Lets a session read all that waits for it."""
        self.wrote()
        self.core.gaps = []
        deliveries = self.core.deliveries(session)
        for told in self.core.gaps:
            for handle in told.handles:
                name, key = NAMES[handle - 1], told.key.decode()
                for offset in range(told.first, told.to):
                    place = name, key, offset
                    twice = place in self.gaps[session.number] and self.is_prompt  # Else it may span others.
                    assert not twice, f"a gap was told twice: {place}"
                    self.gaps[session.number].add(place)
                self.model.gap(name, key, told.first, told.to, not self.is_prompt)
        for delivery in deliveries:
            for key, offset, body in bodies_of(delivery):
                for handle in delivery.handles:
                    self._gets(session, NAMES[handle - 1], key, offset, body, delivery.redelivered)
        for (number, name), window in self.windows.items():
            if number == session.number:
                queue = self.model.queues.get(name, {})
                out = sum(out.session == number for binding in queue.values() for out in binding.out.values())
                assert out <= window, f"session {number} has {out} messages of {name}, and a window of {window}"

    def _gets(self, session: Session, name: str, key: str, offset: int, body: bytes, redelivered: int) -> None:
        number = session.number
        self.model.delivered(name, key, offset, body, number, redelivered, self.told_ms, self.core.now_ms)
        self.order.given(name, number, key, offset)

    def _held(self, session: Session) -> list[tuple[str, str, Binding, int]]:
        return [
            (name, key, binding, offset)
            for name, key, binding in self.model.bindings()
            for offset in sorted(binding.out)
            if binding.out[offset].session == session.number
        ]

    def ack(self, session: Session, random: Random, share: float = 0.6) -> None:
        """Acks about such a share of what a session holds."""
        for name, key, binding, offset in self._held(session):
            if random.random() < share:
                self.core.ack(session, key, offset, offset + 1, NAMES.index(name) + 1)
                binding.was_acked(offset)

    def nack(self, session: Session, random: Random, delay_ms: int, unseen: bool) -> None:
        """Gives back some of what a session holds. `unseen`: no program was given it."""
        for name, key, binding, offset in self._held(session):
            if random.random() < 0.4:
                attachment = session.attachments[NAMES.index(name) + 1]
                row = self.core.tables.key.get(self.core.state.full_name(key.encode()))
                assert row is not None
                terms = NackTerms(0 if unseen else delay_ms, unseen)
                self.core.dispatcher.nack(attachment, row[ID], offset, offset + 1, terms)
                binding.came_back(offset, "nack", self.core.now_ms, not unseen, terms.delay_ms)

    def flush(self) -> None:
        """Waits until all acks are durable, as a frame of acks does for its answer."""
        told: list[ShoalError | None] = []
        self.core.node.acks.then(told.append)
        while not told:
            self.core.node.acks.flush()
            self.core.commit()
        self.model.flushed()
