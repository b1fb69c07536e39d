"""`shoal locate` with a redirector whose answer is not what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal_contract.errors import Malformed
from shoal_contract.wire import redirector_pb2 as wire
from shoal_ops.commands import places

SLICE = wire.SliceAddress(slice="s01", address="a:1")


@pytest.mark.parametrize(
    "answer",
    [
        wire.LocateResponse(slices=[SLICE]),
        wire.LocateResponse(partitions=[1], owners=[0, 0], slices=[SLICE]),
        wire.LocateResponse(partitions=[1], owners=[1], slices=[SLICE]),
        wire.LocateResponse(partitions=[1, 2], owners=[0, 0], slices=[SLICE]),
    ],
)
async def test_an_answer_that_places_no_key_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: wire.LocateResponse
) -> None:
    async def ask(at: str, ask: Callable[..., Any]) -> tuple[str, wire.LocateResponse]:
        return at, answer

    monkeypatch.setattr(places, "ask_redirector", ask)
    with pytest.raises(Malformed, match="the answer of redirector a:7400 cannot be read: it does not place 1 keys"):
        await places.locate("a:7400", ["room"], as_json=True)
