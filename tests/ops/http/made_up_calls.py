"""A hook of schemathesis, loaded by its own process (test_openapi.py): made-up pulls don't wait for a minute."""

from __future__ import annotations

from typing import Any

import schemathesis

from shoal_ops.http.limits import PULL_WAIT_S_MAX


@schemathesis.hook
def before_call(context: Any, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    body = case.body
    if not isinstance(body, dict):
        return
    wait_s = body.get("wait_s")
    if isinstance(wait_s, int | float) and not isinstance(wait_s, bool) and 0 <= wait_s <= PULL_WAIT_S_MAX:
        body["wait_s"] = 0.05
