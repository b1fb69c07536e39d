"""What frames are charged while they wait is what they take, for each kind of frame that the wire has."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.checking import session_frames
from tests.repository import ROOT, with_tests

from . import measured_answers
from .measured_frames import KINDS

SMALL_BYTES = 2_048
"""Below this a frame's own cost counts, whatever is in it."""


counts_memory = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not count its memory"
)


def measured(module: str) -> dict[str, tuple[int, int]]:
    """Returns what a program measured: of each kind what it takes, and what it is charged, in bytes."""
    command = (sys.executable, "-m", module)
    environment = {**os.environ, **with_tests(), "PYTHONMALLOC": "malloc"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, tuple[int, int]] = json.loads(done.stdout)
    return found


@counts_memory
def test_a_frame_is_charged_what_it_takes() -> None:
    """The charge was only compared with itself: a hundredth of it passed, and nodes grew beyond their memory."""
    found = measured("tests.slice_node.measured_frames")
    assert set(found) == {*KINDS, "live"}
    for kind, (taken, charged) in found.items():
        assert taken <= 1.25 * charged, (kind, taken, charged)
        assert charged <= 6 * max(taken, SMALL_BYTES), (kind, taken, charged)


@counts_memory
def test_an_answer_is_charged_what_it_takes() -> None:
    """It was charged its bytes and waited as a message, which takes 5 to 208 times as much: sessions that read no
    answers took 17 times their share, most of the node's memory."""
    found = measured("tests.slice_node.measured_answers")
    assert {kind.split()[0] for kind in found} == {*measured_answers.KINDS}
    for kind, (taken, charged) in found.items():
        assert taken <= 1.25 * charged, (kind, taken, charged)
        assert charged <= 2 * taken, (kind, taken, charged)


def test_each_kind_of_frame_has_a_charge() -> None:
    """A new kind is charged by its bytes alone only where someone said so."""
    for kind in KINDS:
        if kind != "change":  # It is charged by its operations, once it is parsed.
            request = wire.SessionRequest()
            getattr(request, kind).SetInParent()
            assert session_frames.kept_bytes(request) >= SMALL_BYTES
    assert session_frames.kept_bytes(wire.SessionRequest()) == SMALL_BYTES, "no frame at all"
