"""What headers took on the wire: those of the calls before took next to nothing."""

from __future__ import annotations

from shoal_contract.seen_headers import SeenHeaders

AGENT = ("user-agent", "grpc-python-asyncio/1.80.0")


def test_only_new_headers_count() -> None:
    seen = SeenHeaders()
    assert 0 < seen.new_bytes([AGENT]) < sum(map(len, AGENT))
    assert seen.new_bytes([AGENT]) == 0
    assert 700 < seen.new_bytes([AGENT, ("trace", "a" * 1_200)]) < 1_200
    assert 700 < seen.new_bytes([AGENT, ("trace", "b" * 1_200)]) < 1_200


def test_headers_in_turn_are_still_in_the_table() -> None:
    seen = SeenHeaders()
    turns = [[("trace", letter * 1_000)] for letter in "abc"]
    assert all(seen.new_bytes(headers) for headers in turns)
    assert not any(seen.new_bytes(headers) for headers in 10 * turns)


def test_what_the_table_has_no_room_for_comes_each_time_and_nothing_grows() -> None:
    seen = SeenHeaders()
    for number in range(10_000):
        assert seen.new_bytes([("large", "x" * 5_000)]) > 2_500
        seen.new_bytes([(f"name-{number}", b"value")])
    assert len(seen._sizes) < 200
