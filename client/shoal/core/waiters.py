"""Defines what a request or a frame answers: a waiter, made by the code that waits.

The library gives futures of its event loop; an embedded broker or a simulator may give objects of its own.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from shoal_contract.errors import ShoalError

Answer = TypeVar("Answer", contravariant=True)


class Waiter(Protocol[Answer]):
    """Takes one answer, or one error. An `asyncio.Future` is a waiter."""

    def done(self) -> bool:
        """Returns whether it has its answer, or waits no more. Then it must be given nothing."""

    def set_result(self, result: Answer, /) -> None:
        """Gives the answer."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Gives the error."""


class _Unheard:
    """Stands for no waiter: the request is done all the same, and its answer goes nowhere."""

    def done(self) -> bool:
        return False

    def set_result(self, result: object, /) -> None:
        pass

    def set_exception(self, exception: BaseException, /) -> None:
        pass


UNHEARD = _Unheard()


def fail_waiter(waiter: Waiter[Any], error: ShoalError) -> None:
    """Fails `waiter` with its own copy of the error, unless it is done: a raised error collects its own traceback."""
    if not waiter.done():
        copy = type(error)(*error.args)
        copy.__dict__.update(error.__dict__)
        waiter.set_exception(copy)
