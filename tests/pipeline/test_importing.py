"""What a worker sends to a slice, without Spark: when its stream begins, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shoal_contract.errors import Corrupt
from shoal_contract.wire import bulk_pb2 as wire
from shoal_pipeline.bulk import importing
from shoal_pipeline.bulk.importing import Target

TARGET = Target("s01", "there:1", bytes(16), "run")


class Slice:
    """Answers every chunk. `streams`: imports that it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.streams = 0
        monkeypatch.setattr(importing, "bulk_stub", self._stub)

    @contextmanager
    def _stub(self, slice_name: str, address: str) -> Iterator[Slice]:
        yield self

    def Import(self, requests: Iterator[wire.ImportRequest]) -> Iterator[wire.ImportResponse]:  # noqa: N802 - gRPC's
        self.streams += 1
        return (wire.ImportResponse(chunk=request.chunk) for request in requests)


def answered(requests: Iterator[wire.ImportRequest]) -> list[int]:
    return [answer.chunk for answer in importing._answers(TARGET, importing._failing_here(requests))]


def test_an_import_holds_no_place_while_its_first_chunk_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Slice(monkeypatch)

    def requests() -> Iterator[wire.ImportRequest]:
        assert not there.streams, "sorting, and passing over what is there already, may take minutes"
        for number in (3, 4):
            yield wire.ImportRequest(chunk=number)

    assert answered(requests()) == [3, 4] and there.streams == 1
    assert answered(iter(())) == [] and there.streams == 1, "nothing is left to send"


@pytest.mark.parametrize("good", [0, 2])
def test_what_is_wrong_with_a_chunk_is_raised_wherever_it_stands(good: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Slice(monkeypatch)

    def requests() -> Iterator[wire.ImportRequest]:
        for number in range(good):
            yield wire.ImportRequest(chunk=number)
        raise Corrupt("damaged")

    with pytest.raises(Corrupt, match="damaged"):
        answered(requests())
