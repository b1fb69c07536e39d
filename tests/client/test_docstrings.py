"""Docstrings of the public names: each coroutine says what it raises, and each example runs as it stands."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest

import shoal
from shoal.testing import FakeCluster

EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
WAIT_S = 30


def documented() -> Iterator[tuple[str, Any]]:
    """Public names, and the members of public classes that this library defines."""
    for name in shoal.__all__:
        found = getattr(shoal, name)
        yield name, found
        for member in dir(found) if inspect.isclass(found) else ():
            of = next((vars(base)[member] for base in found.__mro__ if member in vars(base)), None)
            function = of.fget if isinstance(of, property) else of
            if not member.startswith("_") and getattr(function, "__module__", "").startswith("shoal."):
                yield f"{name}.{member}", function


EXAMPLES = {name: EXAMPLE.findall(inspect.getdoc(found) or "") for name, found in documented()}
EXAMPLES = {name: found for name, found in EXAMPLES.items() if found}


def test_each_public_coroutine_says_what_it_raises() -> None:
    coroutines = {name: found for name, found in documented() if inspect.iscoroutinefunction(found)}
    assert len(coroutines) > 40
    assert [name for name, found in coroutines.items() if "aises" not in (found.__doc__ or "")] == []


def test_what_needs_more_than_a_line_has_an_example() -> None:
    needs = {"Broker.consume", "Broker.pull", "Gap", "Message.process", "Transaction"}
    assert needs <= set(EXAMPLES)


def compiled(example: str) -> CodeType:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(example, "docstring", "exec", flags=flags, dont_inherit=True)
    return code


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_runs_and_handles_every_message(name: str) -> None:
    (example,) = EXAMPLES[name]
    printed: list[object] = []
    async with FakeCluster().connect() as broker, asyncio.timeout(WAIT_S):
        await broker.declare(["anna", "ben", "inbox-anna"])
        key = "{room-7}talk" if name == "Transaction" else "room"
        await broker.configure(key, shoal.KeyOptions(capacity_messages=2, policy="drop_oldest"))
        for queue in ("anna", "ben"):
            await broker.bind(queue, key)
        for body in [b"1", b"2", b"3"] if name == "Gap" else [b"1"]:
            await broker.publish(key, body)
        named = [queue for queue in ("anna", "ben") if f'"{queue}"' in example]
        names = {"shoal": shoal, "broker": broker, "print": lambda *values: printed.append(values)}
        if name == "Transaction":
            names["message"] = (await broker.pull("anna", 1))[0]
        running: asyncio.Task[Any] = asyncio.ensure_future(eval(compiled(example), names))
        while any([(await broker.describe(queue)).messages for queue in named]):
            assert not running.done() or running.exception() is None, running.exception()
        if "async for" in example:
            running.cancel()  # It would wait for more.
        await asyncio.wait([running])
        assert running.cancelled() or running.exception() is None, running.exception()
    assert printed
