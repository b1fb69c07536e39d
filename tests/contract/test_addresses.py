"""Addresses of redirectors: a host alone means port 7400; what is none says what to write."""

from __future__ import annotations

import pytest

from shoal_contract.addresses import redirector_address, redirector_addresses
from shoal_contract.errors import Malformed


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("localhost", "localhost:7400"),
        ("localhost:7900", "localhost:7900"),
        ("10.0.0.1", "10.0.0.1:7400"),
        ("[::1]", "[::1]:7400"),
        ("[::1]:80", "[::1]:80"),
        (" shoal.example.org ", "shoal.example.org:7400"),
    ],
)
def test_a_host_alone_means_the_redirectors_port(written: str, meant: str) -> None:
    assert redirector_address(written) == meant


@pytest.mark.parametrize(
    "written", ["", ":7400", "host:", "host:0", "host:65536", "host:x", "::1", "a b:1", "http://host:7400", "h:\u0663"]
)
def test_what_is_no_address_says_what_to_write(written: str) -> None:
    with pytest.raises(Malformed, match=r"is not host:port .*as localhost:7400"):
        redirector_address(written)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("", "the host is missing"),
        (":7400", "the host is missing"),
        ("[]:7400", "the host is missing"),
        ("::1", "write an IPv6 address in brackets"),
        ("::", "write an IPv6 address in brackets"),
        ("::1:7400", "write an IPv6 address in brackets"),
        ("fe80::1%eth0", "write an IPv6 address in brackets"),
        ("host name", "a host cannot have a space in it"),
        ("host name:7400", "a host cannot have a space in it"),
        ("http://host:7400", "a host cannot have '/' in it"),
        ("anna@host", "a host cannot have '@' in it"),
        ("host\0:1", r"a host cannot have '\\x00' in it"),
        ("[::1", "a host cannot have '\\[' in it"),
        ("host:", "its port is ''; it needs 1 to 65535"),
    ],
)
def test_what_is_wrong_with_an_address_is_told(written: str, problem: str) -> None:
    with pytest.raises(Malformed, match=rf"is not host:port \({problem}\): give the"):
        redirector_address(written)


def test_a_port_alone_is_told_to_be_one() -> None:
    with pytest.raises(Malformed, match=r"'7400' is not host:port .that is a port, and the host is missing.: give the"):
        redirector_address("7400")


def test_several_stand_with_commas_between_them() -> None:
    assert redirector_addresses("a, b:1 ,c,") == ("a:7400", "b:1", "c:7400")
    for none in ("", ","):
        with pytest.raises(Malformed, match="is not host:port"):
            redirector_addresses(none)
    with pytest.raises(Malformed, match="b:x"):
        redirector_addresses("a,b:x")


@pytest.mark.parametrize("written", [None, 7400, b"localhost"])
def test_another_type_is_the_callers_slip(written: object) -> None:
    with pytest.raises(TypeError, match="must be str, host:port"):
        redirector_address(written)
