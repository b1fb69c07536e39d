"""Questions what became of acks are asked ever more seldom while the slice says that it has none of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shoal.asking import Asking
from shoal.attachments import Attachments
from shoal.core.acks import Acked
from shoal.core.frames import Frame
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import until

FIRST_S, LONGEST_S, ALL_S = 0.01, 0.32, 0.6


@pytest.mark.parametrize("news", [False, True])
async def test_the_pause_between_questions_grows_unless_there_are_news(news: bool) -> None:
    asked = 0

    def send(frame: Frame) -> None:
        nonlocal asked
        asked += 1
        request = wire.SessionRequest()
        frame.fill(request)
        places = [] if news else list(range(len(request.acks.acks)))
        frame.answered(wire.Answer(unacked=wire.Unacked(places=places)))

    attachments: Any = SimpleNamespace(is_open=True, has=lambda _: True, resets_seen=0, changed=asyncio.Event())
    asking = Asking(
        cast(Attachments, attachments),
        send,
        lambda: [Acked(b"k", 1, 2, [1])],
        lambda _: None,
        lambda _: None,
        FIRST_S,
        LONGEST_S,
        of_lost_stream=False,
    )
    asking.soon()
    grown = 2 + sum(FIRST_S * 2**times < ALL_S for times in range(20))
    if news:
        await until(lambda: asked > 2 * grown)
    else:
        await asyncio.sleep(ALL_S)
        assert 1 <= asked <= grown
    asking.close()
