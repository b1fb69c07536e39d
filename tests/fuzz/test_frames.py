"""Runs frames by mutation against a real node once: the same requests each time; `make soak` makes others."""

from __future__ import annotations

import pytest

from tests.fuzz.frames import attempt

SEED = 2


@pytest.mark.slow
async def test_no_request_harms_the_node_or_others() -> None:
    await attempt(SEED)
