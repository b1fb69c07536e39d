"""Counting fields of serialized messages: as a parser would find them, and never further than asked."""

from hypothesis import given
from hypothesis import strategies as st

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire_count import Shape, count_fields

CHANGE: Shape = {1: {2: {}, 5: {}}}
NAMES = st.lists(st.binary(max_size=5), max_size=4)


@given(st.lists(st.tuples(NAMES, NAMES), max_size=5))
def test_fields_are_counted_as_they_were_written(steps: list[tuple[list[bytes], list[bytes]]]) -> None:
    change = wire.Change(steps=[wire.Step(binds=wire.Binds(queues=one, keys=two)) for one, two in steps])
    data = change.SerializeToString()
    assert count_fields(data, {}, 1000) == len(steps)
    assert count_fields(data, CHANGE, 1000) == sum(2 + len(one) + len(two) for one, two in steps)


def test_the_count_ends_at_its_bound() -> None:
    data = wire.Change(steps=[wire.Step(drops=wire.Drops(queues=[b"q"] * 1000))] * 3).SerializeToString()
    assert count_fields(data, CHANGE, 100) == 101
    assert count_fields(b"\x0a\x00" * 1_000_000, {}, 10) == 11


@given(st.binary(max_size=200))
def test_any_bytes_are_counted_without_an_error(data: bytes) -> None:
    assert 0 <= count_fields(data, {1: {1: {}}}, 50) <= 51


def test_numbers_of_every_width_are_passed() -> None:
    data = b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x11" + bytes(8) + b"\x1d" + bytes(4) + b"\x22\x01x"
    assert count_fields(data, {}, 50) == 4


def test_packed_numbers_count_by_their_bytes() -> None:
    data = wire.Purges(positions=range(1000)).SerializeToString()
    assert count_fields(data, {}, 1000) == 1
    assert 100 < count_fields(data, {2: None}, 1000) < 300
