"""A plugin of pytest, for runs on the compiled core: skips a test that replaces a part of the core.

Compiled code has constants and calls in it, and a compiled class cannot be given another method: what such a test puts
in place would not be used. All other tests hold for both cores. test_compiled_core.py uses it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import ModuleType
from typing import NoReturn
from unittest import mock

import pytest
from hypothesis import settings

from shoal_slice_node.core_choice import running_core
from shoal_slice_node.core_stamp import COMPILED
from tests.fuzz import small_limits

_set_attribute = pytest.MonkeyPatch.setattr
_patch_object = mock.patch.object


def pytest_configure(config: pytest.Config) -> None:
    mock.patch.object = _checked_patch  # type: ignore[assignment]
    pytest.MonkeyPatch.setattr = _checked_set  # type: ignore[method-assign]
    small_limits.patched = _no_small_limits
    threading.setprofile = _no_profile


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A fifth of the examples of state machines: all of them run on the plain core, which is the same source."""
    machines = {getattr(item, "cls", None) for item in items}
    for machine in machines:
        if machine is not None and hasattr(machine, "settings"):
            machine.settings = settings(machine.settings, max_examples=machine.settings.max_examples // 5)


def pytest_sessionfinish(session: pytest.Session) -> None:
    assert running_core() == "compiled", "no test has loaded the compiled core"


def _no_small_limits(values: Mapping[str, int]) -> NoReturn:
    pytest.skip("makes limits of the core small, which compiled code does not notice")


def _no_profile(func: object) -> None:
    if func is not None:
        pytest.skip("looks at the calls that the core makes, which compiled code does not show")


def _checked_patch(target: object, *arguments: object, **named: object) -> object:
    _skip_if_core(target)
    return _patch_object(target, *arguments, **named)  # type: ignore[call-overload]


def _checked_set(self: pytest.MonkeyPatch, target: object, *arguments: object, **named: object) -> None:
    _skip_if_core(target)
    _set_attribute(self, target, *arguments, **named)  # type: ignore[call-overload]


def _skip_if_core(target: object) -> None:
    if isinstance(target, str):
        place = target
    elif isinstance(target, ModuleType):
        place = target.__name__
    else:
        place = getattr(target, "__module__", None) or type(target).__module__
    if place.startswith(COMPILED):
        pytest.skip("replaces a part of the core, which compiled code does not notice")
