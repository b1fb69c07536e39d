"""Queries as bytes, and parameters that are not known."""

from __future__ import annotations

import pytest

from shoal_contract.errors import Malformed
from shoal_runtime.http.query import check_names, values


def test_values_are_bytes_in_order() -> None:
    query = b"key=a&other=x&key=%FF%00&key=a%26b+c&key"
    assert values(query, "key") == [b"a", b"\xff\x00", b"a&b c", b""]
    assert values(b"", "key") == []


def test_unknown_parameters_are_named_with_those_that_are_known() -> None:
    check_names(b"", frozenset())
    check_names(b"a=1&b&a=2&", {"a", "b"})
    check_names(b"%61=1", {"a"})
    with pytest.raises(Malformed, match="query parameter 'c' is not known here: it takes a, b") as caught:
        check_names(b"a=1&c=2", {"b", "a"})
    assert caught.value.subject == "c"
    with pytest.raises(Malformed, match="it takes none"):
        check_names(b"=", frozenset())
