"""Names that no queue and no key may have, in every verb: the call is refused, and nothing else notices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from shoal_contract.errors import InvalidName, ShoalError
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.journal_record import encode_record
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.storage.journal_files import Journal

from .core_driver import bind, declare, drop, publish, purge, unbind
from .node_process import NodeProcess
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

WAIT_S = 60
MESSAGE = Chunk(bodies=[b"x"])
NO_QUEUE = {
    "declare": declare(""),
    "bind": bind("", "k"),
    "unbind": unbind("", "k"),
    "drop": drop(""),
    "purge": purge(""),
}
NO_KEY = {
    "bind to ''": bind("q", ""),
    "bind to @": bind("q", "@"),
    "unbind from @": unbind("q", "@"),
    "publish to ''": publish("", b"x"),
    "publish to @": publish("@", b"x"),
    "long": declare("q" * 256),
}


def unary_calls(stub: SliceServiceAsyncStub) -> dict[str, Awaitable[Any]]:
    """Each verb with an empty queue, and with the direct key of a queue without a name."""
    describe, ack = wire.Describe, wire.Ack
    return {
        "declare": stub.Declare(wire.DeclareRequest()),
        "bind": stub.Bind(wire.BindRequest(keys=[b"k"])),
        "unbind": stub.Unbind(wire.UnbindRequest(keys=[b"k"])),
        "drop": stub.Drop(wire.DropRequest()),
        "purge": stub.Purge(wire.PurgeRequest()),
        "pull": stub.Pull(wire.PullRequest(pull=wire.Pull(messages_max=1))),
        "peek": stub.Pull(wire.PullRequest(pull=wire.Pull(messages_max=1, peek=True))),
        "describe": stub.Describe(wire.DescribeRequest(describe=describe(queues=[b""]))),
        "describe @": stub.Describe(wire.DescribeRequest(describe=describe(keys=[b"@"]))),
        "ack": stub.Ack(wire.AckRequest(acks=[ack(key=b"k", to=9, queues=[b""])])),
        "ack @": stub.Ack(wire.AckRequest(acks=[ack(key=b"@", to=9, queues=[b"q"])])),
        "publish to ''": stub.Publish(wire.PublishRequest(chunk=MESSAGE)),
        "publish to @": stub.Publish(wire.PublishRequest(key=b"@", chunk=MESSAGE)),
        "bind to @": stub.Bind(wire.BindRequest(queue=b"q", keys=[b"@"])),
    }


def frames(session: RawSession) -> dict[str, Callable[[], Awaitable[object]]]:
    found: dict[str, Callable[[], Awaitable[object]]] = {
        name: partial(session.change, step) for name, step in {**NO_QUEUE, **NO_KEY}.items()
    }
    found["attach"] = partial(session.attach, [b""])
    found["ack"] = partial(session.ack, wire.Ack(key=b"k", to=9, queues=[b""]))
    found["pull"] = partial(session.ask, wire.SessionRequest(pull=wire.Pull(messages_max=1)))
    found["describe"] = partial(session.ask, wire.SessionRequest(describe=wire.Describe(queues=[b""])))
    return found


async def outcome_of(call: Awaitable[object]) -> str:
    try:
        async with asyncio.timeout(WAIT_S):
            await call
    except grpc.aio.AioRpcError as error:
        return type(from_rpc_error(error)).__name__
    except (ShoalError, TimeoutError) as error:
        return type(error).__name__
    return "taken"


async def test_an_empty_name_in_any_verb_is_refused_and_the_node_lives_and_starts_again(tmp_path: Path) -> None:
    """One default message, or a publish to `@`, ended the node, and each restart replayed it and ended again."""
    node = await NodeProcess.start(tmp_path)
    async with node.stub() as stub:
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
        await stub.Publish(wire.PublishRequest(key=b"k", chunk=MESSAGE))
        found = {f"unary {name}": await outcome_of(call) for name, call in unary_calls(stub).items()}
        session = await RawSession.open(stub)
        for name, frame in frames(session).items():
            found[f"frame {name}"] = await outcome_of(frame())
    alive = node.alive
    await node.kill()
    again = await NodeProcess.start(tmp_path)
    async with again.stub() as stub:
        described = await stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[b"q"])))
    await again.kill()
    assert alive and described.description.queues[0].messages == 1
    assert {name: text for name, text in found.items() if text != InvalidName.__name__} == {}


async def test_a_journal_that_holds_such_frames_already_is_replayed(tmp_path: Path) -> None:
    """Whatever is in a journal can be applied, also what a version without these checks wrote there."""
    node = await NodeProcess.start(tmp_path)
    async with node.stub() as stub:
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
    await node.kill()
    journal = Journal.open(tmp_path / "journal", 0)
    for step in (*NO_QUEUE.values(), *NO_KEY.values(), declare("r")):
        payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), wire.Change(steps=[step]).SerializeToString())
        lsn = journal.next_lsn
        journal.append(encode_record(Kind.CHANGE, lsn, 1, 1000, payload), lsn, lsn)
    journal.close()
    again = await NodeProcess.start(tmp_path)
    async with again.stub() as stub:
        described = await stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[b"q", b"r"])))
    await again.kill()
    assert [queue.exists for queue in described.description.queues] == [True, True]
