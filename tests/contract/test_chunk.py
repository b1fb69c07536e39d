"""Chunks: what goes in comes out, and each limit holds at its very value."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_contract.chunk import cut_chunk, encode_chunk, measure_chunk, parse_chunk, read_stored_chunk
from shoal_contract.errors import Malformed, TooLarge
from shoal_contract.limits import BODY_BYTES_MAX, CHUNK_BYTES_MAX, CHUNK_HEADERS_MAX, CHUNK_MESSAGES_MAX
from shoal_contract.wire.common_pb2 import Chunk, Headers

HEADERS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=10), st.binary(max_size=20))


@given(st.lists(st.tuples(st.binary(max_size=50), HEADERS), min_size=1, max_size=20))
def test_chunk_round_trips(messages: list[tuple[bytes, dict[str, bytes]]]) -> None:
    bodies, headers = [body for body, _ in messages], [fields for _, fields in messages]
    chunk = parse_chunk(encode_chunk(bodies, headers))
    assert list(chunk.bodies) == bodies
    carried = [dict(each.fields) for each in chunk.headers]
    assert carried == (headers if any(headers) else [])


@given(st.lists(st.tuples(st.binary(max_size=50), HEADERS), min_size=1, max_size=20), st.data())
def test_a_cut_chunk_is_the_one_that_its_messages_alone_would_make(
    messages: list[tuple[bytes, dict[str, bytes]]], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(messages) - 1))
    end = data.draw(st.integers(begin + 1, len(messages)))
    bodies, headers = [body for body, _ in messages], [fields for _, fields in messages]
    cut = read_stored_chunk(cut_chunk(parse_chunk(encode_chunk(bodies, headers)), begin, end))
    assert list(cut.bodies) == bodies[begin:end]
    assert [dict(each.fields) for each in cut.headers] == (headers[begin:end] if any(headers) else [])


@pytest.mark.parametrize("size", [0, 1, 2, 126, 127, 128, 129, 255, 256, 16_382, 16_383, 16_384, 70_000])
def test_one_body_is_measured_as_it_is_read(size: int) -> None:
    data = encode_chunk([bytes(size)])
    assert measure_chunk(data) == (1, size)
    for other in (data + b"\x0a\x00", data + b"\x12\x00", data[:-1], data + b"x", b"\x12" + data[1:]):
        try:
            bodies = parse_chunk(other).bodies
        except Malformed:
            with pytest.raises(Malformed):
                measure_chunk(other)
        else:
            assert measure_chunk(other) == (len(bodies), sum(map(len, bodies)))


@given(st.binary(max_size=8).map(lambda some: b"\x0a" + some) | st.binary(max_size=5))
def test_any_bytes_are_measured_as_they_are_read(data: bytes) -> None:
    try:
        bodies = parse_chunk(data).bodies
    except Malformed:
        with pytest.raises(Malformed):
            measure_chunk(data)
    else:
        assert measure_chunk(data) == (len(bodies), sum(map(len, bodies)))


def test_headers_that_are_all_empty_cost_nothing() -> None:
    assert encode_chunk([b"a", b"b"], [None, {}]) == encode_chunk([b"a", b"b"])


def test_missing_headers_among_others_stay_in_their_place() -> None:
    chunk = parse_chunk(encode_chunk([b"a", b"b"], [None, {"from": b"x"}]))
    assert [dict(each.fields) for each in chunk.headers] == [{}, {"from": b"x"}]


def test_chunk_without_messages_is_refused() -> None:
    with pytest.raises(Malformed, match="no messages"):
        encode_chunk([])
    with pytest.raises(Malformed, match="no messages"):
        parse_chunk(b"")


def test_headers_must_match_the_bodies_in_number() -> None:
    chunk = Chunk(bodies=[b"a", b"b"], headers=[Headers()])
    with pytest.raises(Malformed, match="2 messages but 1 headers"):
        parse_chunk(chunk.SerializeToString())


def test_bytes_that_are_no_chunk_are_refused() -> None:
    with pytest.raises(Malformed, match="cannot be read"):
        parse_chunk(b"\x0a\xff")


def test_messages_are_limited() -> None:
    assert len(parse_chunk(encode_chunk([b""] * CHUNK_MESSAGES_MAX)).bodies) == CHUNK_MESSAGES_MAX
    with pytest.raises(TooLarge) as caught:
        encode_chunk([b""] * (CHUNK_MESSAGES_MAX + 1))
    assert (caught.value.limit, caught.value.value) == (CHUNK_MESSAGES_MAX, CHUNK_MESSAGES_MAX + 1)


def test_body_is_limited() -> None:
    assert encode_chunk([b"x" * BODY_BYTES_MAX])
    with pytest.raises(TooLarge, match=f"^body bytes: {BODY_BYTES_MAX + 1}; the limit is {BODY_BYTES_MAX}$"):
        encode_chunk([b"x" * (BODY_BYTES_MAX + 1)])


def test_chunk_is_limited_with_its_framing_and_headers() -> None:
    half = CHUNK_BYTES_MAX // 2
    framing = len(encode_chunk([b"x" * (half - 100)] * 2)) - 2 * (half - 100)
    bodies = [b"x" * half, b"x" * (half - framing)]
    assert len(encode_chunk(bodies)) == CHUNK_BYTES_MAX
    with pytest.raises(TooLarge, match=r"^chunk bytes"):
        encode_chunk([bodies[0], bodies[1] + b"x"])


@pytest.mark.parametrize("bodies", [[b""], [b"a"], [b"a", b"bc"], [bytes(BODY_BYTES_MAX)]])
def test_measure_agrees_with_parse(bodies: list[bytes]) -> None:
    data = encode_chunk(bodies)
    parsed = parse_chunk(data).bodies
    assert measure_chunk(data) == (len(parsed), sum(map(len, parsed)))


@pytest.mark.parametrize("data", [b"", b"\xff", Chunk(bodies=[bytes(BODY_BYTES_MAX + 1)]).SerializeToString()])
def test_measure_refuses_what_parse_refuses(data: bytes) -> None:
    with pytest.raises((Malformed, TooLarge)) as refused:
        parse_chunk(data)
    with pytest.raises(refused.type):
        measure_chunk(data)


def test_header_fields_are_limited_over_all_messages() -> None:
    each = {str(number): b"" for number in range(64)}
    encode_chunk([b""] * 64, [each] * 64)
    with pytest.raises(TooLarge, match=f"^chunk headers: {CHUNK_HEADERS_MAX + 64}; the limit is {CHUNK_HEADERS_MAX}$"):
        encode_chunk([b""] * 65, [each] * 65)


@pytest.mark.parametrize("field", [b"\x0a\x00", b"\x12\x00", b"\x12\x02\x0a\x00"], ids=["bodies", "headers", "fields"])
def test_a_chunk_of_very_many_tiny_fields_is_refused_without_being_built(field: bytes) -> None:
    """Parsing 2 MiB of them would hold a process for 40 ms and take 50 MB."""
    data = field * (CHUNK_BYTES_MAX // len(field))
    with pytest.raises(TooLarge, match="chunk fields"), patch.object(Chunk, "FromString", side_effect=AssertionError):
        measure_chunk(data)


def test_text_full_of_newlines_is_no_reason_to_refuse_a_chunk() -> None:
    body = b"\n" * (BODY_BYTES_MAX - 100)
    assert measure_chunk(encode_chunk([body])) == (1, len(body))


def test_a_chunk_over_its_bytes_is_refused_before_it_is_read() -> None:
    with pytest.raises(TooLarge, match="chunk bytes"):
        measure_chunk(b"\x0a\x00" * (CHUNK_BYTES_MAX // 2 + 1))
