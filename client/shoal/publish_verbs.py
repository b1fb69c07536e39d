"""Offers publish and send to applications: a part of `Broker`, which has all verbs. Checks the arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from shoal.core import publishing
from shoal.core.publish_requests import PublishTerms, publish_terms
from shoal.messages import Receipt
from shoal.repeatable_publishes import RepeatablePublishes
from shoal.routing import Routing
from shoal_contract.arguments import Body
from shoal_contract.errors import Malformed
from shoal_contract.names import Name, direct_key, encode_name

Headers = Mapping[str, Body]


class PublishVerbs:
    """Is the part of a connection that publishes. `Broker` says what its calls may raise besides.

    `idempotency_key`, where a call has it: str or bytes, up to 255 bytes. A repeat of the call with the same key, the
    same message and the same idempotency key stores nothing and gets the first answer, a refusal included, from
    whatever process it comes, for a day. Such a publish goes by itself, not in the order of the connection's others.
    """

    _routing: Routing
    _repeatable: RepeatablePublishes
    _deadline: Callable[[float | None], float]

    async def publish(
        self,
        key: Name,
        body: Body,
        *,
        headers: Headers | None = None,
        mandatory: bool = False,
        not_before: datetime | float | None = None,
        live: bool = False,
        ttl: float | None = None,
        idempotency_key: Name | None = None,
        deadline_s: float | None = None,
    ) -> Receipt:
        """Publishes one message, which is durable when this returns. Repeats after a lost connection are stored once.

        `body`: bytes, bytearray or memoryview, up to 1 MiB. `mandatory`: raise Unroutable if no queue is bound.
        `not_before`: a datetime with a time zone, or Unix time in seconds: the message is kept at once, and published
        when the slice's clock has come to that time, at most a year from now. `live`: give it only to inboxes that are
        open now, and store nothing; after a lost connection it is not repeated: Unavailable. `ttl`: seconds for which
        it is valid, from when it is published; then it is not delivered any more, and queues that still had to get it
        have a Gap. `idempotency_key`: see PublishVerbs. Raises TooLarge, OutOfRange, Malformed for `live` with another
        of them. Waits while too much is unanswered.
        """
        if idempotency_key is not None:
            name, terms = encode_name(key, "key"), publish_terms(mandatory, not_before, live, ttl)
            return await self._publish_once(key, name, [body], [headers], terms, idempotency_key, deadline_s)
        future = await self.publish_soon(
            key,
            body,
            headers=headers,
            mandatory=mandatory,
            not_before=not_before,
            live=live,
            ttl=ttl,
            deadline_s=deadline_s,
        )
        return await future

    async def publish_soon(
        self,
        key: Name,
        body: Body,
        *,
        headers: Headers | None = None,
        mandatory: bool = False,
        not_before: datetime | float | None = None,
        live: bool = False,
        ttl: float | None = None,
        deadline_s: float | None = None,
    ) -> asyncio.Future[Receipt]:
        """Publishes as `publish` does, but returns the future of the receipt as soon as there is room. Raises what
        is known without an answer: errors of the arguments, DeadlineExceeded where no room came. The future has all
        else, such as Unroutable."""
        name = encode_name(key, "key")
        deadline = self._deadline(deadline_s)
        terms = publish_terms(mandatory, not_before, live, ttl)
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        await self._routing.publish(publishing.single(key, name, body, headers, terms, deadline, future))
        return future

    def publish_nowait(
        self,
        key: Name,
        body: Body,
        *,
        headers: Headers | None = None,
        mandatory: bool = False,
        not_before: datetime | float | None = None,
        live: bool = False,
        ttl: float | None = None,
        deadline_s: float | None = None,
    ) -> asyncio.Future[Receipt]:
        """Publishes as `publish_soon` does, but raises ResourceExhausted instead of waiting for room."""
        name = encode_name(key, "key")
        deadline = self._deadline(deadline_s)
        terms = publish_terms(mandatory, not_before, live, ttl)
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._routing.publish_nowait(publishing.single(key, name, body, headers, terms, deadline, future))
        return future

    async def publish_many(
        self,
        key: Name,
        bodies: Iterable[Body],
        *,
        headers: Iterable[Headers | None] = (),
        mandatory: bool = False,
        not_before: datetime | float | None = None,
        live: bool = False,
        ttl: float | None = None,
        idempotency_key: Name | None = None,
        deadline_s: float | None = None,
    ) -> Receipt:
        """Publishes messages to one key as one chunk: all or none, at consecutive offsets from the receipt's `offset`.

        `headers`: none, or one (or None) for each body. At most 4,096 messages and 2 MiB. Raises TooLarge, Malformed
        (no messages), Unroutable. `idempotency_key`: see PublishVerbs.
        """
        name = encode_name(key, "key")
        terms = publish_terms(mandatory, not_before, live, ttl)
        if idempotency_key is not None:
            return await self._publish_once(key, name, bodies, headers, terms, idempotency_key, deadline_s)
        deadline = self._deadline(deadline_s)
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        await self._routing.publish(publishing.batch(key, name, bodies, headers, terms, deadline, future))
        return await future

    async def send(
        self,
        queue: Name,
        body: Body,
        *,
        headers: Headers | None = None,
        live: bool = False,
        ttl: float | None = None,
        idempotency_key: Name | None = None,
        deadline_s: float | None = None,
    ) -> Receipt:
        """Publishes to the queue's direct key, `@queue`. Raises Unroutable if there is no such queue.
        `idempotency_key`: see PublishVerbs."""
        key = direct_key(encode_name(queue, "queue"))
        terms = publish_terms(True, None, live, ttl)
        if idempotency_key is not None:
            return await self._publish_once(queue, key, [body], [headers], terms, idempotency_key, deadline_s)
        deadline = self._deadline(deadline_s)
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        await self._routing.publish(publishing.single(queue, key, body, headers, terms, deadline, future))
        return await future

    async def _publish_once(
        self,
        name: Name,
        key: bytes,
        bodies: Iterable[Body],
        headers: Iterable[Headers | None],
        terms: PublishTerms,
        idempotency_key: Name,
        deadline_s: float | None,
    ) -> Receipt:
        if terms.live:
            what = "a live publish stores nothing, so no repeat of it can be known: live and idempotency_key"
            raise Malformed(f"{what} exclude each other", subject="idempotency_key")
        once = encode_name(idempotency_key, "idempotency key")
        chunk = publishing.chunk_of(bodies, headers)
        return await self._repeatable.publish(name, key, once, chunk, terms, self._deadline(deadline_s))
