"""Names: 1 to 255 bytes, said so in the error; any bytes can be shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_contract.errors import InvalidName
from shoal_contract.limits import NAME_BYTES_MAX
from shoal_contract.names import check_name, direct_key, encode_name, printable, show, text


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_text_becomes_its_utf8(name: str) -> None:
    assert encode_name(name, "key") == name.encode()
    assert text(name.encode()) == name


@given(st.binary(min_size=1, max_size=NAME_BYTES_MAX))
def test_bytes_stay_as_they_are(name: bytes) -> None:
    assert encode_name(name, "queue") is name


@pytest.mark.parametrize("name", ["a", b"\x00", "k" * 255, "ü" * 127, b"\xff" * 255])
def test_name_within_the_limit_is_taken(name: str | bytes) -> None:
    assert encode_name(name, "key")


@pytest.mark.parametrize(("name", "size"), [("q" * 300, 300), (b"\xff" * 256, 256), ("ü" * 128, 256)])
def test_name_beyond_the_limit_is_refused_with_both_figures(name: str | bytes, size: int) -> None:
    with pytest.raises(InvalidName, match=f"^queue name is {size} bytes; the limit is 255$") as caught:
        encode_name(name, "queue")
    assert (caught.value.limit, caught.value.value) == (NAME_BYTES_MAX, size)


@pytest.mark.parametrize("name", ["", b""])
def test_empty_name_is_refused(name: str | bytes) -> None:
    with pytest.raises(InvalidName, match=r"^key name is empty; it needs 1 to 255 bytes$"):
        encode_name(name, "key")


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidName, match="not valid Unicode"):
        encode_name("\ud800", "key")


@pytest.mark.parametrize("name", [7, None, bytearray(b"a")])
def test_other_types_are_the_callers_bug(name: object) -> None:
    with pytest.raises(TypeError, match="key name must be str or bytes"):
        encode_name(name, "key")  # type: ignore[arg-type]


def test_bytes_that_are_no_utf8_are_shown_escaped() -> None:
    assert show(b"room-\xff") == text(b"room-\xff") == "room-\\xff"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("esc\x1b]0;pwned\x07\x1b[2J\nfake", r"esc\x1b]0;pwned\x07\x1b[2J\x0afake"),
        ("\x7f\x85\x9b", r"\x7f\u0085\u009b"),
        ("\u202eabc\u2066\u2028", r"\u202eabc\u2066\u2028"),
        ("\U000e0041", r"\U000e0041"),
        (r"\x1b", r"\\x1b"),
        ("\x01é\u202e東\xa0", r"\x01é\u202e東\u00a0"),
        ("Zürich 東京", "Zürich 東京"),
    ],
)
def test_names_reach_people_without_control_over_their_terminal(name: str, shown: str) -> None:
    assert show(name.encode()) == shown
    assert printable(name) == shown.replace("\\\\", "\\")


@given(st.lists(st.binary(min_size=1, max_size=12), min_size=2, max_size=2, unique=True))
def test_no_two_names_are_shown_alike_and_none_with_what_is_not_printable(names: list[bytes]) -> None:
    first, second = map(show, names)
    assert first != second
    assert (first + second).isprintable()


def test_subject_of_a_refusal_can_go_on_the_wire() -> None:
    with pytest.raises(InvalidName) as caught:
        check_name(b"\xff" * 1000, "queue")
    assert caught.value.to_wire().value == 1000


def test_direct_key_is_the_queue_behind_an_at_sign() -> None:
    assert direct_key(b"resident-1") == b"@resident-1"
