"""Bounds the bodies of requests: how large, how slow, and how many bytes of them at a time.

A body has a place, of the size that it announces, from the request's head to the end of its answer. The place grows if
the body holds many JSON values, which take more memory than their text. Where no place is left, bodies make room that
come more slowly than their announced size allows, first the one with most place for what it brought; otherwise the
newcomer is asked to come again. Small bodies have a part of the room for themselves.
"""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

from shoal_contract.errors import DeadlineExceeded, Malformed, ResourceExhausted, TooLarge
from shoal_runtime.http import limits
from shoal_runtime.http.headers import one_value
from shoal_runtime.http.problem import Refused


class Body:
    """Bounds one request's body. Give `receive` to the application, and `close` it after the answer."""

    def __init__(self, bodies: Bodies, receive: Receive, place_bytes: int) -> None:
        self._bodies = bodies
        self._receive = receive
        self.place_bytes = place_bytes
        self._announced_bytes = place_bytes
        self._values_bytes = 0
        """What JSON values take beside their text, at most: a brace or a comma in a text counts too."""
        self.received_bytes = 0
        self.since = self._began = asyncio.get_running_loop().time()
        """The time when the last STEP_BYTES were complete, in seconds of the loop's clock."""
        self._since_bytes = 0
        """The value of `received_bytes` at that time."""
        self._ended = ""
        self._patience: asyncio.Timeout | None = None

    async def receive(self) -> Message:
        """Does as ASGI's `receive`. Raises Refused if the body is too slow or too large, finds no room, or was ended by
        `end`."""
        if not self._bodies.arriving(self):
            if self._ended:
                raise self._late()
            return await self._receive()
        try:
            async with asyncio.timeout_at(self.since + limits.STEP_S) as self._patience:
                message = await self._receive()
        except TimeoutError:
            raise self._late() from None
        finally:
            self._patience = None
        self._take(message)
        return message

    def needs_bytes(self, body_bytes_max: int) -> int:
        """Returns the bytes of the place that the body needs, as far as is known. Braces in a text never keep a body
        out for good."""
        return self._size_bytes + min(self._values_bytes, body_bytes_max)

    @property
    def _size_bytes(self) -> int:
        return max(self._announced_bytes, self.received_bytes)

    def is_late(self, now: float) -> bool:
        """Tells whether the body comes too slowly where room is short: nothing to speak of for SLOW_S, or less than
        makes it complete in CROWDED_BODY_S."""
        if self.since <= now - limits.SLOW_S:
            return True
        due = self._size_bytes * (now - self._began - limits.SLOW_S) / limits.CROWDED_BODY_S
        return self.received_bytes < due

    @property
    def idle_share(self) -> float:
        """Returns how many bytes of its place the body has for each byte that it brought."""
        return self.place_bytes / (self.received_bytes + 1)

    def end(self, why: str) -> None:
        """Ends the body: the request gets no more of it, and its wait for more raises Refused."""
        self._ended = why
        self._bodies.ended(self)
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    def close(self) -> None:
        self._bodies.ended(self)

    def _take(self, message: Message) -> None:
        piece = message.get("body", b"")
        self.received_bytes += len(piece)
        self._values_bytes += piece.count(b"{") * limits.OBJECT_BYTES
        self._values_bytes += (piece.count(b"[") + piece.count(b",") + piece.count(b":")) * limits.VALUE_BYTES
        more = message["type"] == "http.request" and message.get("more_body", False)
        self._bodies.grown(self, more)
        if self.received_bytes - self._since_bytes >= limits.STEP_BYTES:
            self.since, self._since_bytes = asyncio.get_running_loop().time(), self.received_bytes

    def _late(self) -> Refused:
        why = self._ended or f"it brought less than {limits.STEP_BYTES} bytes in {limits.STEP_S:g} s"
        text = f"the request body was given up after {self.received_bytes} bytes: {why}"
        return Refused(DeadlineExceeded(text, subject="request body", value=self.received_bytes), 408)


class Bodies:
    """Keeps all bodies of a process. `held_bytes`: the bytes of all places that are taken."""

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self.held_bytes = 0
        self._places: set[Body] = set()
        self._arriving: set[Body] = set()
        """The bodies that are not complete."""

    def open(self, scope: Scope, receive: Receive) -> Body:
        """Takes a place for a request's body. Raises TooLarge, ResourceExhausted, Malformed."""
        length = _length(scope)
        if length is not None and length > self._body_bytes_max:
            raise self._too_large(length)
        body = Body(self, receive, limits.BODY_PIECE_BYTES if length is None else length)
        self._make_room(body.place_bytes, body.place_bytes <= limits.SMALL_BODY_BYTES)
        self._places.add(body)
        self.held_bytes += body.place_bytes
        if body.place_bytes:
            self._arriving.add(body)
        return body

    def arriving(self, body: Body) -> bool:
        return body in self._arriving

    def end_late(self) -> bool:
        """Ends a body that comes too slowly, if there is one: its request makes room for another. Returns whether it
        did."""
        now = asyncio.get_running_loop().time()
        least_used = max(
            (body for body in self._arriving if body.is_late(now)), key=lambda body: body.idle_share, default=None
        )
        if least_used is None:
            return False
        least_used.end(
            f"it brought less than {limits.STEP_BYTES} bytes in {limits.SLOW_S:g} s, or would have taken more than"
            f" {limits.CROWDED_BODY_S:g} s, while others waited for room"
        )
        return True

    def grown(self, body: Body, more: bool) -> None:
        """Notes what a body has received. Raises Refused if the body is too large, or there is no room for bytes that
        its head did not announce."""
        if not more:
            self._arriving.discard(body)
        if body.received_bytes > self._body_bytes_max:
            raise Refused(self._too_large(body.received_bytes))
        wanted = body.needs_bytes(self._body_bytes_max) - body.place_bytes
        if wanted > 0 and body in self._places:
            try:
                self._make_room(wanted, body.needs_bytes(self._body_bytes_max) <= limits.SMALL_BODY_BYTES)
            except ResourceExhausted as error:
                raise Refused(error) from None
            body.place_bytes += wanted
            self.held_bytes += wanted

    def ended(self, body: Body) -> None:
        """Gives a place back. Doing so twice is no error."""
        self._arriving.discard(body)
        if body in self._places:
            self._places.remove(body)
            self.held_bytes -= body.place_bytes

    def _make_room(self, wanted: int, small: bool) -> None:
        room = limits.BODIES_BYTES_MAX
        if not small:
            room -= room // limits.SMALL_BODIES_PARTS
        while self.held_bytes + wanted > room:
            if not self.end_late():
                raise ResourceExhausted(
                    f"request bodies under way: {self.held_bytes} bytes, and {wanted} more are wanted; the limit is "
                    f"{room}",
                    subject="request bodies under way",
                    limit=room,
                    value=self.held_bytes + wanted,
                )

    def _too_large(self, length: int) -> TooLarge:
        return TooLarge(
            f"request body is {length} bytes; the limit is {self._body_bytes_max}",
            subject="request body",
            limit=self._body_bytes_max,
            value=length,
        )


def _length(scope: Scope) -> int | None:
    """Returns the bytes of the body that the head announces; None if the length comes with the pieces. Raises
    Malformed."""
    if one_value(scope["headers"], b"transfer-encoding") is not None:
        return None
    length = one_value(scope["headers"], b"content-length") or "0"
    if not length.isascii() or not length.isdecimal():
        raise Malformed(f"content-length {length[:100]!r} is no number", subject="content-length")
    return int(length[:18])
