"""The shapes by which large requests are counted before they are parsed are those that the contract gives them."""

from __future__ import annotations

from typing import Any, cast

import pytest
from google.protobuf.descriptor import Descriptor

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire_count import Shape
from shoal_slice_node.adapters.slice_service import SliceService, unary_methods
from shoal_slice_node.core.checking.session_frames import REQUEST_SHAPE

METHODS = unary_methods(cast(Any, SliceService))


def shape_of(message: Descriptor) -> Shape:
    found: dict[int, Shape | None] = {}
    for field in message.fields:
        if field.message_type is not None:
            found[field.number] = shape_of(field.message_type)
        elif field.is_packed:
            found[field.number] = None
    return found


def test_the_shape_of_a_session_frame_is_the_contract_s() -> None:
    assert shape_of(wire.SessionRequest.DESCRIPTOR) == REQUEST_SHAPE


@pytest.mark.parametrize("method", METHODS)
def test_the_shape_of_a_unary_request_is_the_contract_s(method: str) -> None:
    assert shape_of(cast(Descriptor, METHODS[method].request.DESCRIPTOR)) == METHODS[method].shape
