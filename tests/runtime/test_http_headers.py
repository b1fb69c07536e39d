"""Hosts that are this machine, and forms that only look like it."""

from __future__ import annotations

import pytest

from shoal_contract.errors import Malformed, PermissionDenied
from shoal_runtime.http.headers import check_host, listens_on_loopback, names_loopback, one_value


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:7402", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:7402", "[0:0:0:0:0:0:0:1]:80"]
)
def test_names_of_this_machine(host: str) -> None:
    assert names_loopback(host)
    check_host({"headers": [(b"host", host.encode())]})


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0", "[::]",
        "[127.0.0.1", "[127.0.0.1]", "[[[::1]]]", "::1", "[::1]:", "[::1]x", "127.0.0.1:", "127.0.0.1:1:2",
        "127.0.0.1:x", "user@localhost", "localhost/", " localhost", "localhost:1234567", "127.1", "2130706433",
        "[::1%25eth0]", "localhost\x00",
    ],
)  # fmt: skip
def test_a_host_that_does_not_name_this_machine_is_refused(host: str) -> None:
    assert not names_loopback(host)
    with pytest.raises(PermissionDenied, match="listens on loopback"):
        check_host({"headers": [(b"host", host.encode())]})


def test_a_header_counts_once() -> None:
    headers = [(b"origin", b"http://a"), (b"host", b"x"), (b"origin", b"http://b")]
    assert one_value(headers, b"host") == "x"
    assert one_value(headers, b"cookie") is None
    with pytest.raises(Malformed, match="the header origin is there 2 times"):
        one_value(headers, b"origin")


@pytest.mark.parametrize(
    ("address", "is_loopback"),
    [
        ("127.0.0.1:0", True),
        ("[::1]:1", True),
        ("localhost:7402", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        (":1", False),
    ],
)
def test_a_loopback_address_is_told_from_others(address: str, is_loopback: bool) -> None:
    assert listens_on_loopback(address) is is_loopback
