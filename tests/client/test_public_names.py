"""Whatever `import shoal` gives to users says what it is."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import shoal


def undocumented() -> Iterator[str]:
    """Public names, and public methods and properties of public classes, without a docstring of their own."""
    for name in shoal.__all__:
        found = getattr(shoal, name)
        if inspect.isclass(found):
            text = vars(found).get("__doc__") or ""
            if not text or text.startswith(f"{name}("):  # what a dataclass or a named tuple makes by itself
                yield name
            for member, value in vars(found).items():
                function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if not member.startswith("_") and inspect.isfunction(function) and not function.__doc__:
                    yield f"{name}.{member}"
        elif callable(found) and not found.__doc__:
            yield name


def test_every_public_name_says_what_it_is() -> None:
    assert len(shoal.__all__) > 40
    assert list(undocumented()) == []
