"""Bodies that the command line gets are the bytes that were given, whether they are text or not."""

from __future__ import annotations

import os

from shoal_ops.commands.verbs import _body


async def test_a_body_that_is_no_text_is_taken_as_it_is() -> None:
    for given in (b"\xff\xfe", "h\u00e4llo".encode(), b""):
        assert await _body(os.fsdecode(given)) == given
