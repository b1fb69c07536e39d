"""What crosses the wire and stands in the journal's records, as fixed bytes: written as such, and read from them.

buf compares the contract with what was published (`make check`); here are the bytes themselves. The journal's record is
in test_journal_record.
"""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.errors import NotOwner, from_wire
from shoal_contract.options import KeyOptions
from shoal_contract.wire import common_pb2 as common
from shoal_contract.wire import slice_pb2 as wire

CHANGE = wire.Change(
    steps=[
        wire.Step(declares=wire.Declares(queues=[b"q"], incarnations=[9])),
        wire.Step(binds=wire.Binds(queues=[b"q"], key_counts=[2], keys=[b"k1", b"k2"], start_value=3)),
        wire.Step(unbinds=wire.Unbinds(queues=[b"q"], key_counts=[1], keys=[b"k1"], discard=True)),
        wire.Step(publishes=wire.Publishes(keys=[b"k2"], chunks=[b"chunk"], mandatory=True)),
        wire.Step(drops=wire.Drops(queues=[b"q"], incarnations=[9])),
        wire.Step(imports=wire.Imports(queues=[b"q"], key_counts=[1], keys=[b"k"], starts=[4])),
        wire.Step(purges=wire.Purges(queues=[b"q"], positions=[5])),
    ]
)
TRANSACTION = wire.Change(
    atomic=True,
    steps=[wire.Step(acks=wire.TransactionAcks(queues=[b"q"], keys=[b"k1"], lows=[1], tos=[300]))],
)
OUTCOME = wire.Outcome(
    steps=[
        wire.StepOutcome(offsets=[1, 300], queues=[2], messages=[4], positions=[5], queues_made=6, bindings_made=7),
        wire.StepOutcome(refusals=[wire.Refusal(request=1)]),
    ]
)
REQUEST = wire.SessionRequest(
    sequence=7,
    settled=6,
    acks=wire.Acks(acks=[wire.Ack(key=b"k", low=1, to=300, handles=[1, 2], queues=[b"q"])]),
)
RESPONSE = wire.SessionResponse(
    answers=[wire.Answer(sequence=7, consumed=[1])],
    deliveries=[
        wire.Delivery(key=b"k", first=1, low=2, to=3, chunk=b"chunk", time_ms=1000, handles=[1], redelivered=1)
    ],
    resets=[4],
    ack_timeouts=wire.AckTimeouts(handles=[4], ms=[3000], lives=[7]),
)
DESCRIBED = wire.QueueDescription(
    queue=b"q",
    exists=True,
    binding_count=1,
    messages=300,
    body_bytes=2,
    oldest_ms=1000,
    attached_sessions=3,
    bindings=[wire.BindingDescription(key=b"k", start=1, cursor=2, end=300, messages=3, unacked=301, full=True)],
    incarnation=9,
    farewell=wire.FarewellDescription(key=b"k", after_s=300, due_ms=1000),
    consumed=True,
    unacked=302,
)
GOLDEN: list[tuple[Message, str]] = [
    (
        CHANGE,
        (
            "0a080a060a01711a01090a1212100a01711201021a026b311a026b3228030a0e1a0c0a01711201011a026b3120010a0f"
            "220d0a026b3212056368756e6b18010a082a060a01711201090a0e3a0c0a01711201011a016b2201040a0832060a0171"
            "120105"
        ),
    ),
    (TRANSACTION, "0a10420e0a017112026b311a01012202ac021001"),
    (
        wire.Change(
            steps=[
                wire.Step(drops=wire.Drops(queues=[b"q"], incarnations=[(1 << 64) - 1], if_unused=True, if_empty=True))
            ]
        ),
        "0a152a130a0171120affffffffffffffffff0118012001",
    ),
    (wire.DropRequest(queue=b"q", if_unused=True, if_empty=True), "0a017110011801"),
    (OUTCOME, "0a120a0301ac021201022201042a0105300638070a041a020801"),
    (
        wire.Change(steps=[wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[b"chunk"], live=True))]),
        "0a0e220c0a016b12056368756e6b3001",
    ),
    (common.QueueOptions(exclusive=common.EXCLUSIVE_OLDEST), "2802"),
    (
        wire.SessionResponse(ended=[wire.Ended(handle=3, error=common.Error(subject="q"))]),
        "2a07080312031a0171",
    ),
    (wire.PublishRequest(key=b"k", live=True), "0a016b4001"),
    (wire.Delivery(key=b"k", to=2, chunk=b"chunk", handles=[1], live=True), "0a016b20022a056368756e6b3a01014801"),
    (REQUEST, "080710063a110a0f0a016b100118ac02220201022a0171"),
    (
        wire.SessionRequest(sequence=1, open=wire.Open(producer=b"p" * 16, window_bytes=300)),
        "08011a150a107070707070707070707070707070707010ac02",
    ),
    (wire.SessionRequest(acks=wire.Acks(tell_unacked=True)), "3a021001"),
    (wire.SessionRequest(acks=wire.Acks(resets_seen=0)), "3a021800"),
    (wire.SessionRequest(acks=wire.Acks(of_lost_stream=True)), "3a022001"),
    (wire.Ack(key=b"k", to=2, queues=[b"q"], lives=[300]), "0a016b18022a017132082c01000000000000"),
    (wire.Deliveries(life=300), "18ac02"),
    (
        wire.TransactionAcks(queues=[b"q"], keys=[b"k"], lows=[1], tos=[300], lives=[300]),
        "0a017112016b1a01012202ac022a082c01000000000000",
    ),
    (wire.SessionRequest(nacks=wire.Nacks(unseen=True, number=1, resets_seen=300)), "52071801280130ac02"),
    (wire.Answer(sequence=7, unacked=wire.Unacked(places=[0, 300])), "080742050a0300ac02"),
    (wire.Answer(unacked=wire.Unacked()), "4200"),
    (
        wire.Step(configures=wire.Configures(keys=[b"k"], options=KeyOptions(1, 2, 3, 4).to_wire())),
        "4a0d0a016b12080801100218032004",
    ),
    (
        wire.Step(farewells=wire.Farewells(queues=[b"q"], keys=[b"k"], chunks=[b"chunk"], after_s=300)),
        "52100a017112016b1a056368756e6b20ac02",
    ),
    (
        wire.FarewellRequest(queue=b"q", key=b"k", chunk=common.Chunk(bodies=[b"b"]), after_s=300),
        "0a017112016b1a030a016220ac02",
    ),
    (wire.StepOutcome(offsets=[5, 10], bound_before=[1, 300]), "0a02050a420301ac02"),
    (wire.BindResponse(offsets=[5], bound_before=[0]), "0a0105120100"),
    (wire.ConfigureRequest(key=b"k", options=KeyOptions(1).to_wire()), "0a016b12020801"),
    (wire.Publishes(keys=[b"k"], not_before_ms=300), "0a016b28ac02"),
    (wire.PublishRequest(key=b"k", not_before_ms=300), "0a016b38ac02"),
    (
        wire.SessionRequest(
            sequence=7, attach=wire.Attach(queues=[b"q"], handles=[300], window_messages=5, window_bytes=6)
        ),
        "08072a0b0a01711202ac0218052006",
    ),
    (
        wire.Answer(
            sequence=7,
            attached=wire.Attached(
                absent=[2], lives=[300, 0], ack_timeouts_ms=[3000, 0], tells_nacks_taken=True, epoch=300
            ),
        ),
        "080722120a01021203ac02001a03b81700200128ac02",
    ),
    (wire.SessionRequest(sequence=7, detach=wire.Detach(handles=[1, 300])), "080732050a0301ac02"),
    (
        wire.SessionRequest(
            sequence=7, pull=wire.Pull(queue=b"q", messages_max=5, bytes_max=300, lease_ms=6, peek=True)
        ),
        "0807420c0a0171100518ac0220062801",
    ),
    (
        wire.SessionRequest(sequence=7, describe=wire.Describe(queues=[b"q"], keys=[b"k"], bindings=True)),
        "08074a080a017112016b1801",
    ),
    (
        wire.Answer(
            sequence=7, description=wire.Description(queues=[DESCRIBED], keys=[wire.KeyDescription(key=b"k", head=300)])
        ),
        (
            "080732400a360a01711001200128ac02300238e80740034a110a016b1001180220ac02280330ad02380150095a090a01"
            "6b10ac0218e807600168ae0212060a016b18ac02"
        ),
    ),
    (RESPONSE, "0a0508073a010112180a016b1001180220032a056368756e6b30e8073a010140011a0104320a0a01041202b8171a0107"),
]


@pytest.mark.parametrize(("message", "data"), GOLDEN, ids=[type(message).__name__ for message, _ in GOLDEN])
def test_a_message_is_written_as_these_bytes_and_read_from_them(message: Message, data: str) -> None:
    assert message.SerializeToString(deterministic=True).hex() == data
    assert type(message).FromString(bytes.fromhex(data)) == message


CHUNK = "0a036f6e650a0012080a060a01611201311200"


def test_a_chunk_is_written_as_these_bytes_and_read_from_them() -> None:
    assert encode_chunk([b"one", b""], [{"a": b"1"}, {}]).hex() == CHUNK
    found = parse_chunk(bytes.fromhex(CHUNK))
    assert list(found.bodies) == [b"one", b""]
    assert [dict(headers.fields) for headers in found.headers] == [{"a": b"1"}, {}]


ERROR = "080112086e6f7420686572651a016b3003"


def test_an_error_is_written_as_these_bytes_and_read_from_them() -> None:
    assert NotOwner("not here", subject="k", map_version=3).to_wire().SerializeToString().hex() == ERROR
    found = from_wire(common.Error.FromString(bytes.fromhex(ERROR)))
    assert (type(found), found.message, found.subject) == (NotOwner, "not here", "k")
