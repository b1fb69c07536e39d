"""All channels to servers are opened at one place, which knows how they are encrypted."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import grpc
import pytest

import shoal
from shoal_runtime.channels import open_blocking_channel, open_channel

ROOT = Path(__file__).parents[2]
FOLDERS = ("client", "contract", "ops", "pipeline", "redirector", "runtime", "slice_node")


def test_channels_are_opened_by_channels_py_alone() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    opening = [path for path in files if re.search(r"secure_channel\(", path.read_text(encoding="utf-8"))]
    assert [path.relative_to(ROOT).as_posix() for path in opening] == ["runtime/shoal_runtime/channels.py"]


async def test_a_web_proxy_of_the_environment_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call went to the proxy, those to 127.0.0.1 too."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            asked: Any = channel.unary_unary("/no/Such")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asked(b"", timeout=20)
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED, "the server answered"
        with open_blocking_channel(f"127.0.0.1:{port}") as blocking:
            call: Any = blocking.unary_unary("/no/Such")
            with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
                await asyncio.to_thread(call, b"", timeout=20)
    finally:
        await server.stop(None)


async def test_a_forked_process_is_told_that_it_cannot_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for the redirector for as long as it was given, and blamed that."""
    async with open_channel("127.0.0.1:9"):
        shoal.connect("127.0.0.1:9")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(shoal.Unavailable, match="was forked from one that uses shoal"):
        shoal.connect("127.0.0.1:9")
