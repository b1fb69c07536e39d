"""Addresses that users type: the redirector's port where they leave it out, and what is none is refused by name."""

from __future__ import annotations

import pytest

from shoal_contract.addresses import REDIRECTOR_PORT, redirector_addresses
from shoal_contract.errors import Malformed


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", ("localhost:7400",)),
        ("localhost:7410", ("localhost:7410",)),
        ("a, b:1 ,c", ("a:7400", "b:1", "c:7400")),
        ("127.0.0.1", ("127.0.0.1:7400",)),
        ("::1", ("[::1]:7400",)),
        ("[::1]", ("[::1]:7400",)),
        ("[::1]:65535", ("[::1]:65535",)),
        ("dns:///shoal.example", ("dns:///shoal.example",)),
        ("unix:/run/shoal", ("unix:/run/shoal",)),
    ],
)
def test_the_port_may_be_left_out(text: str, addresses: tuple[str, ...]) -> None:
    assert REDIRECTOR_PORT == 7400
    assert redirector_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", ",", "localhost:", "localhost:http", ":7400", "host:0", "host:65536", "[::1]:"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(Malformed) as refused:
        redirector_addresses(text)
    assert text in str(refused.value)
