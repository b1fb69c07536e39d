"""Whatever `import shoal` and `import shoal.testing` give to users says what it is."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType

import shoal
import shoal.testing


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
    tree = ast.parse(inspect.getsource(sys.modules[found.__module__]))
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
