"""Offers declare, configure, describe, farewell, drop and purge to applications: a part of `Broker`, which has all
verbs. Checks the arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import overload

from shoal.core.many import as_asked, raise_failed
from shoal.core.merging import key_description
from shoal.core.publishing import farewell_chunk
from shoal.core.requests import Conditions
from shoal.dropping import Dropping
from shoal.messages import KeyDescription, QueueDescription
from shoal.owner_calls import OwnerCalls
from shoal.queue_calls import QueueCalls
from shoal.routing import Routing
from shoal_contract.arguments import FAREWELL_AFTER_S, Body, check_flag, check_names
from shoal_contract.names import Name, check_bindable_key, check_key, encode_name
from shoal_contract.options import DURABLE, KeyOptions, QueueOptions, check_key_options, check_queue_options


class QueueVerbs:
    """Is the part of a connection that makes queues, gives keys options, looks at both, gives queues farewells, and
    ends queues. `Broker` says what its calls may raise besides."""

    _queues: QueueCalls
    _owners: OwnerCalls
    _dropping: Dropping
    _routing: Routing
    _deadline: Callable[[float | None], float]

    async def declare(
        self, queues: Name | Iterable[Name], options: QueueOptions = DURABLE, *, deadline_s: float | None = None
    ) -> None:
        """Declares one or many queues. Repeating it changes nothing, but a transient queue's time begins anew.

        `options`: see QueueOptions; left out, the queues are durable. Raises Conflict where a queue exists with other
        options (the other queues are declared); Malformed for a queue whose own direct key is its dead-letter key.
        """
        names = check_names("queue", queues)
        checked = check_queue_options(options)
        checked.check_dead_letter(names)
        await self._queues.declare(list(names), checked, self._deadline(deadline_s))

    async def configure(
        self, keys: Name | Iterable[Name], options: KeyOptions, *, deadline_s: float | None = None
    ) -> None:
        """Gives one or many keys options, in the place of those that they have; KeyOptions() takes them away.

        Raises OutOfRange, InvalidName for a direct key (`@queue`). Each key is done by itself: if some fail, this
        raises the error of the first, whose `failed` has those of all.
        """
        names = check_names("key", keys)
        for name in names:
            check_bindable_key(name)
        failed = await self._owners.configure(list(names), check_key_options(options), self._deadline(deadline_s))
        raise_failed(failed, names, {}, "configured", "keys")

    async def describe(
        self, queue: Name, *, bindings: bool = False, deadline_s: float | None = None
    ) -> QueueDescription:
        """Describes a queue over all its slices; `exists` says whether there is one. `bindings`: list them too.

        The counts are exact: if a slice does not answer, this raises DeadlineExceeded, which names the slice.
        """
        name = encode_name(queue, "queue")
        check_flag("bindings", bindings)
        return await self._queues.describe(queue, name, bindings, self._deadline(deadline_s))

    async def describe_key(self, key: Name, *, deadline_s: float | None = None) -> KeyDescription:
        """Describes a key at its slice; `exists` is False for a key that keeps nothing. Raises what every call may."""
        name = encode_name(key, "key")
        return key_description(key, await self._routing.looks.describe_key(name, self._deadline(deadline_s)))

    async def farewell(
        self,
        queue: Name,
        key: Name | None = None,
        body: Body | None = None,
        *,
        headers: Mapping[str, Body] | None = None,
        after_s: int = 0,
        deadline_s: float | None = None,
    ) -> None:
        """Gives a queue a farewell: a message that its home keeps, and publishes at `key` once no session has consumed
        the queue for `after_s` seconds (up to a day), or when the queue expires. Without `key` and `body`, takes the
        farewell back: there may be none.

        A queue has one at most: a new one takes the place of the old one. It is published once: set it again when the
        queue's slice is back (`on_state`), as it may have been said meanwhile. Its time begins when the last session
        leaves, or now if none consumes the queue; anew after a restart of the home. A drop of the queue takes it back.
        Raises NoSuchQueue; TooLarge if body and headers take more than 64 KiB.
        """
        name = encode_name(queue, "queue")
        if key is None and body is None:
            if headers is not None or after_s != 0:
                raise TypeError("headers and after_s belong to a farewell: name its key and its body")
            await self._owners.farewell(name, b"", b"", 0, self._deadline(deadline_s))
            return
        if key is None or body is None:
            raise TypeError("a farewell needs a key and a body; without both, it is taken back")
        to = encode_name(key, "key")
        check_key(to)
        chunk = farewell_chunk(body, headers)
        seconds = FAREWELL_AFTER_S.check(after_s)
        await self._owners.farewell(name, to, chunk, seconds, self._deadline(deadline_s))

    async def drop(
        self,
        queues: Name | Iterable[Name],
        *,
        if_unused: bool = False,
        if_empty: bool = False,
        deadline_s: float | None = None,
    ) -> None:
        """Ends one or many queues with their bindings and backlogs, on all slices. Raises NoSuchQueue, Conflict.

        Each queue is dropped by itself. Of many, those that can be dropped are; then this raises the error of the first
        that was not. Its `failed` has the errors of all of them, by queue, and its `done` the others.

        `if_unused`: raises Conflict where a session consumes the queue. `if_empty`: where it has a backlog, on any of
        its slices; TooLarge where it has over 1,000 bindings on one. Its home slice looks and drops in one step; what
        another slice gets after it was asked goes with the queue.

        A queue is gone once its home has dropped it. If another slice does not answer, this raises DeadlineExceeded,
        which names the slice; it is asked again, after pauses of up to a minute, for as long as this connection lives;
        and so are all others if the home's answer did not come. What is left there otherwise is removed by `shoal
        sweep`, the admin gateway, or dropping the queue again; until then consumers of a queue that is declared anew
        get it, and binds to its keys may go with it.
        """
        names = check_names("queue", queues)
        check_flag("if_unused", if_unused)
        check_flag("if_empty", if_empty)
        conditions = Conditions(if_unused, if_empty)
        failed = await self._dropping.drop(list(names), conditions, self._deadline(deadline_s))
        raise_failed(failed, names, {}, "dropped")

    @overload
    async def purge(  # type: ignore[overload-overlap]  # as for bind
        self, queues: Name, *, deadline_s: float | None = None
    ) -> int: ...

    @overload
    async def purge(self, queues: Iterable[Name], *, deadline_s: float | None = None) -> dict[Name, int]: ...

    async def purge(self, queues: Name | Iterable[Name], *, deadline_s: float | None = None) -> int | dict[Name, int]:
        """Drops the backlog of one or many queues on all slices; they stay bound. Returns how many messages were
        dropped: one number, or queue -> number for many.

        Messages that its consumers have unacked are forgotten too: they are not given again, and their acks change
        nothing. Messages on their way to a consumer, or published meanwhile, may still come. Raises NoSuchQueue; if a
        slice does not answer, an error that says how many messages were dropped on the others. Many queues are purged
        each by itself, and errors raised as by `drop`.
        """
        names = check_names("queue", queues)
        purged, failed = await self._queues.purge_all(list(names), self._deadline(deadline_s))
        raise_failed(failed, names, purged, "purged")
        return as_asked(queues, names, purged)
