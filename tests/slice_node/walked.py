"""Walks over bindings, step by step."""

from __future__ import annotations

from collections.abc import Iterator

from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.read.binding_walk import Binding, BindingWalk


def walk_bindings(state: State, queue_id: bytes) -> Iterator[list[Binding]]:
    """Yields what each step of a walk finds."""
    walk = BindingWalk(state, queue_id)
    while not walk.over:
        found: list[Binding] = []
        while (binding := walk.next()) is not None:
            found.append(binding)
        walk.pause()
        yield found
