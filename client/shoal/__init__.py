"""Connects applications to Shoal: group chat, presence and notices for very many queues. See ../DESIGN.md.

async with shoal.connect("localhost:7400") as broker:
    await broker.declare("inbox-anna")
    await broker.bind("inbox-anna", "group-7")
    await broker.publish("group-7", b"hello")
    async with broker.consume("inbox-anna") as inbox:
        async for message in inbox:
            await message.ack()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.api import *  # noqa: F403 - type checkers know them by `__all__`
    from shoal.api import __all__ as __all__
else:

    def __getattr__(name: str) -> object:
        """Returns a public name. All of them are loaded with the first one (PEP 562), so `import shoal.core.acks` loads
        no event loop and no gRPC."""
        if name.startswith("__") and name != "__all__":  # Python itself asks for these while it imports.
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        api = import_module("shoal.api")
        globals().update({one: getattr(api, one) for one in api.__all__}, __all__=api.__all__)
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
