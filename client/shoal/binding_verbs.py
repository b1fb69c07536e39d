"""Offers bind and unbind to applications: a part of `Broker`, which has all verbs. Checks the arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import overload

from shoal.binding_calls import BindingCalls
from shoal.core.many import as_asked
from shoal.core.requests import BindRequest, UnbindRequest
from shoal.messages import NOW, Start, check_start
from shoal_contract.arguments import check_flag, check_names
from shoal_contract.names import Name, encode_name


class BindingVerbs:
    """Is the part of a connection that binds queues to keys. `Broker` says what its calls may raise besides."""

    _bindings: BindingCalls
    _deadline: Callable[[float | None], float]

    @overload
    async def bind(  # type: ignore[overload-overlap]  # a name is one key, never an iterable of them
        self, queue: Name, keys: Name, *, start: Start = NOW, deadline_s: float | None = None
    ) -> int: ...

    @overload
    async def bind(
        self, queue: Name, keys: Iterable[Name], *, start: Start = NOW, deadline_s: float | None = None
    ) -> dict[Name, int]: ...

    async def bind(
        self, queue: Name, keys: Name | Iterable[Name], *, start: Start = NOW, deadline_s: float | None = None
    ) -> int | dict[Name, int]:
        """Binds a queue to keys. Returns the first offset that will be seen: one offset, or key -> offset for many.

        `start`: NOW, EARLIEST, Last(messages), Ago(seconds) or Offset(offset). A second bind changes nothing and
        returns the same; as a `BoundBefore` if an offset was asked for. `start.recovered(first)`: False if an offset
        was asked for that is not kept any more.
        Keys of one slice are all bound or none. Raises NoSuchQueue, OutOfRange, TooLarge (over 1,000 keys of a slice).
        """
        name = encode_name(queue, "queue")
        encoded = check_names("key", keys)
        check_start(start)
        deadline = self._deadline(deadline_s)

        def make(some: Sequence[bytes]) -> BindRequest:
            return BindRequest(name, some, start, deadline)

        return as_asked(keys, encoded, await self._bindings.bind(name, list(encoded), make, deadline))

    @overload
    async def unbind(  # type: ignore[overload-overlap]  # as for bind
        self, queue: Name, keys: Name, *, discard: bool = False, deadline_s: float | None = None
    ) -> int: ...

    @overload
    async def unbind(
        self, queue: Name, keys: Iterable[Name], *, discard: bool = False, deadline_s: float | None = None
    ) -> dict[Name, int]: ...

    async def unbind(
        self, queue: Name, keys: Name | Iterable[Name], *, discard: bool = False, deadline_s: float | None = None
    ) -> int | dict[Name, int]:
        """Ends bindings. Returns the first offset that will not be seen (0: was not bound): one, or key -> offset.

        Messages published while bound stay until consumed, unless `discard`. Keys of one slice are all unbound or none.
        Raises NoSuchQueue, TooLarge (over 1,000 keys of a slice).
        """
        name = encode_name(queue, "queue")
        encoded = check_names("key", keys)
        check_flag("discard", discard)
        deadline = self._deadline(deadline_s)

        def make(some: Sequence[bytes]) -> UnbindRequest:
            return UnbindRequest(name, some, discard, deadline)

        return as_asked(keys, encoded, await self._bindings.unbind(name, list(encoded), make, deadline))
