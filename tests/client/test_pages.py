"""Pages over several slices: merged in order, each name once, and never beyond what every slice has told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from shoal.admin import Admin
from shoal.core import pages
from shoal_contract.errors import InvalidName, Malformed, NoSuchQueue
from shoal_contract.wire import admin_pb2 as wire
from shoal_contract.wire.slice_pb2 import BindingDescription


def merged(parts: list[tuple[list[bytes], bytes]], limit: int) -> tuple[list[bytes], str]:
    found, following = pages.merge_names([(dict.fromkeys(names, 1), after) for names, after in parts], limit, max)
    return [name for name, _ in found], following


def test_names_of_all_slices_come_in_order_and_each_once() -> None:
    assert merged([([b"a", b"c"], b""), ([b"b", b"c"], b"")], 10) == ([b"a", b"b", b"c"], "")


def test_a_page_ends_where_a_slice_has_told_no_more() -> None:
    assert merged([([b"a", b"b"], b"b"), ([b"c", b"z"], b"z")], 2) == ([b"a", b"b"], "b")
    assert merged([([b"a"], b"b"), ([b"c", b"z"], b"")], 10) == ([b"a"], "b")


def test_a_full_page_says_where_the_next_begins_though_all_slices_told_all() -> None:
    assert merged([([b"a", b"b"], b""), ([b"c"], b"")], 2) == ([b"a", b"b"], "b")
    assert merged([([b"a", b"b"], b""), ([], b"")], 2) == ([b"a", b"b"], "")


@pytest.mark.parametrize("name", [b"plain-1", b"room 7/%\xff\x00", "Zürich".encode(), b"a=b&c"])
def test_a_next_carries_any_name(name: bytes) -> None:
    following = pages.encode_next(name)
    assert pages.decode_after(following) == name
    assert all(character.isalnum() or character in "-._~%" for character in following)


def test_a_name_that_needs_no_encoding_is_its_own_next() -> None:
    assert pages.encode_next(b"inbox-12") == "inbox-12"
    assert pages.decode_after("Zürich") == "Zürich".encode()


def test_what_a_list_goes_on_after_is_checked_before_anything_is_sent() -> None:
    with pytest.raises(InvalidName):
        pages.decode_after("x" * 300)
    with pytest.raises(Malformed):
        pages.decode_slice_after("s01.xyz", ["s01"])
    assert pages.decode_slice_after("s.01.00ff", ["s.01", "s02"]) == (0, b"\x00\xff")


async def test_a_list_of_bindings_ends_behind_the_last_slice_that_has_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page before ended with that part, so the last page has nothing; the queue is there all the same."""
    admin = Admin.__new__(Admin)
    admin._map = SimpleNamespace(current=SimpleNamespace(slices=["s01", "s02"]))  # type: ignore[assignment]
    has: dict[str, wire.ListBindingsResponse] = {}

    async def list_part(slice_name: str, *_: object) -> wire.ListBindingsResponse | None:
        return has.get(slice_name)

    monkeypatch.setattr(admin, "_deadline", lambda: 0.0)
    monkeypatch.setattr(admin, "_list_part", list_part)
    with pytest.raises(NoSuchQueue):
        await admin.bindings("q", limit=2)
    items = [wire.ListedBinding(binding=BindingDescription(key=key)) for key in (b"k", b"l")]
    has["s01"] = wire.ListBindingsResponse(bindings=items)
    page = await admin.bindings("q", limit=2)
    assert ([one.key for one in page.items], page.next) == (["k", "l"], "s02.")
    page = await admin.bindings("q", after=page.next, limit=2)
    assert (page.items, page.next) == ((), "")
