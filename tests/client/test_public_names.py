"""Whatever `import shoal` and `import shoal.testing` give to users says what it is."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

import shoal
import shoal.testing
from tests.repository import parsed

CORE = Path(__file__).parents[2] / "client" / "shoal" / "core"


def undocumented(module: ModuleType) -> Iterator[str]:
    """A module's public names, and public methods and properties of public classes, without a docstring of their
    own."""
    for name in module.__all__:
        found = getattr(module, name)
        if inspect.isclass(found):
            text = vars(found).get("__doc__") or ""
            if not text or text.startswith(f"{name}("):  # what a dataclass or a named tuple makes by itself
                yield name
            for member, value in vars(found).items():
                function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if not member.startswith("_") and inspect.isfunction(function) and not function.__doc__:
                    yield f"{name}.{member}"
            yield from undocumented_fields(found)
        elif callable(found) and not found.__doc__:
            yield name


def undocumented_fields(found: type) -> Iterator[str]:
    """Public fields of a class with neither a string below them nor their name in the class's docstring."""
    tree = parsed(inspect.getsource(sys.modules[found.__module__]))
    (definition,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == found.__name__)
    text = ast.get_docstring(definition) or ""
    for node, below in pairwise([*definition.body, ast.Pass()]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            described = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if not (described or name.startswith("_") or f"`{name}`" in text):
                yield f"{found.__name__}.{name}"


def test_every_public_name_says_what_it_is() -> None:
    assert len(shoal.__all__) > 40
    assert list(undocumented(shoal)) == []
    assert list(undocumented(shoal.testing)) == []


def in_a_new_process(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_the_core_alone_loads_no_event_loop_and_no_grpc() -> None:
    cores = ", ".join(sorted(f"shoal.core.{path.stem}" for path in CORE.glob("*.py") if path.stem != "__init__"))
    assert "shoal.core.acks" in cores
    loaded = (
        f"import sys, {cores}; print([name for name in ('asyncio', 'grpc', 'shoal.broker') if name in sys.modules])"
    )
    assert in_a_new_process(loaded) == "[]"


def test_public_names_are_there_when_they_are_asked_for() -> None:
    assert in_a_new_process("import shoal; print(shoal.connect.__module__)") == "shoal.broker"
    assert in_a_new_process("from shoal import *; print(KeyOptions())")
    assert in_a_new_process("from shoal import limits, Message; print(limits.__name__)") == "shoal.limits"
    assert in_a_new_process("import shoal; print(set(shoal.__all__) <= set(dir(shoal)))") == "True"
    assert in_a_new_process("import shoal; print(hasattr(shoal, 'nothing'))") == "False"
    with pytest.raises(AttributeError, match="module 'shoal' has no attribute 'nothing'"):
        _ = shoal.nothing  # type: ignore[attr-defined]
