"""Extends uvicorn's HTTP/1.1 connection: each wait for the peer is bounded, heads are strict, log lines name the peer.

Belongs here: what happens on a connection. Not here: which connection must end (connections.py), how a head is read
(head.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from shoal_contract.errors import Malformed, ShoalError, TooLarge
from shoal_runtime.http import limits, problem
from shoal_runtime.http.connections import Connections, Waits
from shoal_runtime.http.head import StrictConnection
from shoal_runtime.http.transport import CountedTransport
from shoal_runtime.http.turns import Turns
from shoal_runtime.rare_log import RareLog

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

_log = logging.getLogger(__name__)


class Config(uvicorn.Config):
    """Extends uvicorn's configuration with what the connections of one server share."""

    def __init__(
        self, application: ASGIApp, connections: Connections[Protocol], bounds: limits.HttpLimits, **uvicorns: Any
    ) -> None:
        super().__init__(application, http=Protocol, h11_max_incomplete_event_size=bounds.head_bytes_max, **uvicorns)
        self.connections = connections
        self.head_bytes_max = bounds.head_bytes_max
        self.turns = Turns(bounds.pause_s)
        self.refusals = RareLog(_log, limits.LOG_LINES_PER_S)


class _OwnFaults(_Adapter):
    """Passes uvicorn's log on, without the lines that peers cause. uvicorn's lines do not name the peer, and a peer can
    cause any number of them; our own log has these facts."""

    @property
    def level(self) -> int:
        return self.logger.level

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        pass

    def error(self, msg: object, *args: object, **kwargs: Any) -> None:
        # An application gives up an answer that is not read, and knows why.
        if msg != "ASGI callable returned without completing response.":
            super().error(msg, *args, **kwargs)


class Protocol(H11Protocol):
    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config, Config)
        self._shared = config
        self._strict = self.conn = StrictConnection(config.head_bytes_max)
        self.logger = cast(logging.Logger, _OwnFaults(self.logger, {}))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._counted = CountedTransport(transport)
        super().connection_made(self._counted)
        victim = self._shared.connections.opened(self, self.loop.time())
        if victim is not None:
            victim.end()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._shared.turns.leave(self)
        self._shared.connections.lost(self)

    def handle_events(self) -> None:
        """Asks for the connection's turn, in which the data is read. uvicorn calls this where there may be data."""
        if not self.conn.trailing_data[0]:
            return
        self._counted.hold(True)
        self._shared.turns.ask(self)
        self._note()
        self._shared.connections.asks(self)

    def turn(self) -> None:
        self._shared.connections.had_turn(self)
        if self.transport.is_closing():
            return
        self._strict.begin_turn()
        try:
            super().handle_events()
        except BaseException:
            self.transport.abort()
            raise
        if self._strict.more:
            self.handle_events()
        else:
            self._counted.hold(False)
            self._note()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._note()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._note()

    def end(self) -> None:
        """Closes the connection. Bytes that its peer has not taken are thrown away."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def look(self) -> None:
        """Notes how much of its answer the peer has taken, and whether that is all."""
        if self._waits_for() is not Waits.READER:
            self._note()
            return
        unread, held = self.transport.get_write_buffer_size(), self._counted.held_bytes
        self._shared.connections.unread(self, unread, held, self.loop.time())

    def send_400_response(self, msg: str) -> None:
        """Answers a request that is not HTTP, or not accepted here. uvicorn's text names neither the fault nor the
        peer."""
        refusal = self._strict.refusal
        text = str(refusal)[:300] if refusal is not None else msg
        self._shared.refusals.warning("bad HTTP request from %s: %s", self._peer, text)
        if self.cycle is not None and not self.cycle.response_complete:
            # The application hears that its caller is gone; it may not write anything any more.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._write_problem(text, refusal.error_status_hint if refusal is not None else 400)
        self.transport.close()

    @property
    def _peer(self) -> str:
        return f"{self.client[0]}:{self.client[1]}" if self.client else "an unknown peer"

    def _write_problem(self, text: str, status: int) -> None:
        what = f"this is no HTTP request as this server takes it: {text}"
        if status == 431:
            error: ShoalError = TooLarge(what, subject="head", limit=self._shared.head_bytes_max)
        else:
            error = Malformed(what, subject="request")
        body = json.dumps(problem.body_of(error, status)).encode()
        headers = [
            (b"content-type", problem.MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        start = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode())
        for event in (start, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def _unsupported_upgrade_warning(self) -> None:
        """Logs nothing: a request to upgrade is answered as if it had not asked to, as RFC 9110 says."""

    def _note(self) -> None:
        waits, now = self._waits_for(), self.loop.time()
        self._shared.connections.waits(self, waits, now)
        if waits is Waits.READER:
            self.look()

    def _waits_for(self) -> Waits:
        if self.flow.write_paused or self.transport.is_closing() or self._holds_answer():
            return Waits.READER
        if self.cycle is not None and not self.cycle.response_complete:
            return Waits.ANSWER
        if self.conn.their_state is h11.SEND_BODY:
            return Waits.REST
        return Waits.HEAD if self.cycle is None or self._strict.begun else Waits.NEXT

    def _holds_answer(self) -> bool:
        """Tells whether much memory waits for the last bytes of an answer: it is free once all of them are taken."""
        return self._counted.held_bytes > limits.TAIL_BYTES and self.transport.get_write_buffer_size() > 0
