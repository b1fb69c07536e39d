"""Frames that take many times their bytes once they are parsed, one of each kind. As a program it prints what each
takes, measured, and what it is charged; with PYTHONMALLOC=malloc the C library counts all of it."""

from __future__ import annotations

import ctypes
import gc
import json
import sys

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.kept_frames import parse_frame
from shoal_slice_node.core.dispatch.asked_attaches import AskedAttaches

from .core_driver import publish

COPIES = 20
FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
KINDS = [field.name for field in wire.SessionRequest.DESCRIPTOR.oneofs_by_name["frame"].fields]


def frame_of(kind: str) -> wire.SessionRequest:
    """Returns a frame that takes many times its bytes once it is parsed."""
    frame = wire.SessionRequest()
    named = [wire.Ack(key=b"k", low=low, to=low + 1, handles=[1]) for low in range(1, 4001, 2)]
    names = [b"%d" % number for number in range(1000)]
    if kind == "acks":
        frame.acks.acks.extend(named)
    elif kind == "nacks":
        frame.nacks.messages.extend(named)
    elif kind == "attach":
        frame.attach.queues.extend(names)
        frame.attach.handles.extend(range(2, 1002))
    elif kind == "detach":
        frame.detach.handles.extend([5] * 10_000)
    elif kind == "describe":
        frame.describe.queues.extend(names)
    elif kind in ("open", "pull"):
        getattr(frame, kind).SetInParent()
    else:
        assert kind in ("change", "live"), f"{kind}: a new kind of frame needs a large one here"
        steps = [publish("k", b"x") for _ in range(1000)]
        for step in steps:
            step.publishes.live = kind == "live"
        frame.change = wire.Change(steps=steps).SerializeToString()
    return frame


class Info(ctypes.Structure):
    """As malloc.h of the C library has it."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def used_bytes() -> int:
    gc.collect()
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Info
    found = mallinfo2()
    return int(found.uordblks + found.hblkhd)


def measure(kind: str) -> tuple[int, int]:
    """Returns the bytes that a frame takes, and those that it is charged."""
    data = frame_of(kind).SerializeToString()
    parse_frame(data)
    before = used_bytes()
    kept = [parse_frame(data) for _ in range(COPIES)]
    asked = [AskedAttaches() for _ in kept]
    for noted, one in zip(asked, kept, strict=True):
        noted.begin(one.request.attach.queues)
    taken = (used_bytes() - before) // COPIES
    assert len(asked) == len(kept)
    return taken, kept[0].bytes


if __name__ == "__main__":
    sys.stdout.write(json.dumps({kind: measure(kind) for kind in [*KINDS, "live"]}))
