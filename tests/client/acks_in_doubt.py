"""Acks that have no answer when their stream is lost."""

from __future__ import annotations

import asyncio

import shoal
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import until
from tests.client.fake_slice import FakeSlice


async def take(inbox: shoal.Inbox, count: int) -> list[shoal.Message]:
    async with asyncio.timeout(10):
        return [await anext(inbox) for _ in range(count)]


async def attached_again(inbox: shoal.Inbox, slice_: FakeSlice, opens: int) -> None:
    await until(lambda: len(slice_.opens) > opens and inbox._slices[slice_.name].attachments.complete)


async def in_doubt(inbox: shoal.Inbox, slice_: FakeSlice, messages: list[shoal.Message], *, had: bool = True) -> None:
    """The acks of these messages have no answer when the stream is lost. `had`: the slice took them."""
    opens = len(slice_.opens)
    asked = len(slice_.frames)
    if had:
        slice_.answering.clear()
    else:
        slice_.ignored = {"acks"}
    inbox.ack(*messages)
    await until(lambda: any(frame.HasField("acks") for frame in slice_.frames[asked:]))
    slice_.cut()
    slice_.answering.set()
    slice_.ignored = set()
    await attached_again(inbox, slice_, opens)


def questions(slice_: FakeSlice) -> list[wire.Acks]:
    return [frame.acks for frame in slice_.frames if frame.acks.tell_unacked]
