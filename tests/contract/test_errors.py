"""Errors: every wire code has one class, and every field survives both wire forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_contract import errors
from shoal_contract.errors import DeadlineExceeded, OutcomeUnknown, ShoalError, from_wire, from_wire_bytes
from shoal_contract.limits import ERROR_TEXT_BYTES_MAX
from shoal_contract.names import printable
from shoal_contract.wire.common_pb2 import Error, ErrorCode

CODES = [value for value in ErrorCode.values() if value != ErrorCode.ERROR_CODE_UNSPECIFIED]
FIELDS = ("message", "subject", "limit", "value", "map_version", "owner", "leader", "position")
UINT64 = st.integers(0, 2**64 - 1)
WIRE_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def classes() -> list[type[ShoalError]]:
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, ShoalError)]
    return [each for each in found if "code" in vars(each) and each is not ShoalError]


def fields_of(error: ShoalError) -> list[object]:
    return [getattr(error, name) for name in FIELDS]


def test_every_code_has_exactly_one_class_named_like_it() -> None:
    assert sorted(each.code for each in classes()) == sorted(CODES)
    for each in classes():
        word = ErrorCode.Name(each.code).removeprefix("ERROR_CODE_").replace("_", "")
        assert each.__name__.upper() == word


def test_every_class_says_what_the_caller_should_do() -> None:
    for each in classes():
        assert any(base.__doc__ for base in each.__mro__ if issubclass(base, ShoalError) and base is not ShoalError)


@pytest.mark.parametrize("code", CODES, ids=ErrorCode.Name)
def test_code_round_trips_to_its_class(code: ErrorCode.ValueType) -> None:
    raised = from_wire(Error(code=code, message="queue name is 300 bytes; the limit is 255"))
    assert raised.code == code and type(raised) in classes()
    assert str(raised) == "queue name is 300 bytes; the limit is 255"


@given(
    st.sampled_from(classes()),
    st.tuples(WIRE_TEXT.filter(bool), WIRE_TEXT, UINT64, UINT64, UINT64, WIRE_TEXT, WIRE_TEXT, UINT64),
)
def test_all_fields_survive_both_wire_forms(cls: type[ShoalError], values: tuple[object, ...]) -> None:
    message, *rest = values
    error = cls(message, **dict(zip(FIELDS[1:], rest, strict=True)))  # type: ignore[arg-type]
    inline, metadata = from_wire(error.to_wire()), from_wire_bytes(error.to_wire().SerializeToString())
    assert type(inline) is type(metadata) is cls
    expected = [printable(field) if isinstance(field, str) else field for field in fields_of(error)]
    assert fields_of(inline) == fields_of(metadata) == expected


@pytest.mark.parametrize("code", [0, max(CODES) + 1, 4711])
def test_unknown_code_is_a_plain_shoal_error_with_its_message(code: int) -> None:
    newer = Error(code=code, message="from a newer server")  # type: ignore[arg-type]
    raised = from_wire(newer)
    assert type(raised) is ShoalError
    assert raised.message == "from a newer server"


def test_a_refusal_whose_text_was_left_out_says_so_and_has_its_figures() -> None:
    found = Error()
    errors.OutOfRange("offset 9 asked for", subject="key", limit=7, value=9).write(found, texts=False)
    raised = from_wire(found)
    assert isinstance(raised, errors.OutOfRange) and (raised.subject, raised.limit, raised.value) == ("", 7, 9)
    assert str(raised).startswith("OutOfRange without a text")


def test_a_deadline_is_met_by_whoever_expects_a_timeout() -> None:
    with pytest.raises(TimeoutError, match="no answer") as caught:
        raise from_wire(DeadlineExceeded("no answer", subject="slice s01").to_wire())
    assert isinstance(caught.value, OutcomeUnknown)
    assert caught.value.subject == "slice s01"


def test_a_figure_of_more_than_64_bits_is_cut_and_the_error_still_told() -> None:
    """A client's largest number, and one more, is the limit that such an error names."""
    error = errors.OutOfRange("the next is 2**64", limit=1 << 64, value=(1 << 64) + 1)
    assert (error.to_wire().limit, error.to_wire().value) == ((1 << 64) - 1, (1 << 64) - 1)


def test_texts_of_a_server_are_cut_and_printable() -> None:
    """They go to logs and terminals, whatever the server is."""
    steered = "\x1b[31m\u202e" + "x" * 3_000_000
    sent = Error(message=steered, subject=steered, owner="\x1b", leader="a:1\n")
    found = from_wire(sent)
    assert found.message.startswith("\\x1b[31m\\u202ex") and found.message == found.subject
    assert len(found.message) < 2 * ERROR_TEXT_BYTES_MAX and found.message.isprintable()
    assert (found.owner, found.leader) == ("\\x1b", "a:1\\x0a")
