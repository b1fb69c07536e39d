"""The forms of requests and answers about queues, keys and messages, as OpenAPI shows them.

Belongs here: forms, their bounds and examples. Not here: administration (models_admin.py), and what is done with them.

Long because the forms of all requests about queues, keys and messages are here.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shoal_contract import options as contract_options
from shoal_contract.arguments import (
    ACK_TIMEOUT_MS,
    CAPACITY_BYTES,
    CAPACITY_MESSAGES,
    EXPIRES_AFTER_S,
    FAREWELL_AFTER_S,
    HISTORY_AGE_S,
    HISTORY_MESSAGES,
    LEASE_MS,
    MAX_DELIVERIES,
    NACK_DELAY_MS,
    OFFSET,
    PULL_MESSAGES,
    TTL_MS,
)
from shoal_contract.limits import BODY_BYTES_MAX, DEAD_LETTER_BYTES_MAX, NAME_BYTES_MAX, TIME_S_MAX
from shoal_ops.http import limits, names
from shoal_ops.http.bounded_json import FIRST, HeaderTexts, check_fields
from shoal_ops.http.messages import BODY_BASE64_MAX

NameText = Annotated[str, Field(min_length=1, max_length=NAME_BYTES_MAX)]
NameEncoded = Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX)]
OffsetNumber = Annotated[int, Field(ge=OFFSET.low, le=OFFSET.high)]


def example(**fields: Any) -> ConfigDict:
    """Returns a form's settings, with an example. Unknown fields are refused, and false is not taken for a number."""
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [fields]})


class Form(BaseModel):
    """Is the base of all forms of requests. The first unknown field ends the look at one."""

    @model_validator(mode="before")
    @classmethod
    def _has_only_known_fields(cls, given: Any) -> Any:
        return check_fields(given, cls.__pydantic_fields__)


class QueueOptions(Form):
    model_config = example(expires_after_s=0, ack_timeout_ms=30_000, max_deliveries=5, dead_letter="failed-jobs")
    expires_after_s: Annotated[
        int,
        Field(
            ge=EXPIRES_AFTER_S.low,
            le=EXPIRES_AFTER_S.high,
            description="0: durable; else a slice drops the queue when no session has consumed it for so many seconds",
        ),
    ] = 0
    ack_timeout_ms: Annotated[
        int,
        Field(
            ge=ACK_TIMEOUT_MS.low,
            le=ACK_TIMEOUT_MS.high,
            description="0: none; else what a session has not acked for so long, at least 100, is given again",
        ),
    ] = 0
    max_deliveries: Annotated[
        int,
        Field(
            ge=MAX_DELIVERIES.low,
            le=MAX_DELIVERIES.high,
            description="0: no bound; else a message delivered so often that comes back goes to dead_letter",
        ),
    ] = 0
    dead_letter: Annotated[
        str, Field(max_length=DEAD_LETTER_BYTES_MAX, description="a key, only with max_deliveries; empty: none")
    ] = ""
    dead_letter_encoded: NameEncoded | None = None
    exclusive: Annotated[
        Literal["none", "newest", "oldest"],
        Field(description="one session at a time consumes it: a newer one takes over, or the oldest stays"),
    ] = "none"

    @classmethod
    def of(cls, options: contract_options.QueueOptions) -> Self:
        dead_letter = options.dead_letter
        shown = names.fields("dead_letter", dead_letter if isinstance(dead_letter, bytes) else dead_letter.encode())
        return cls(**asdict(options) | shown)

    def values(self) -> contract_options.QueueOptions:
        dead_letter: bytes | str = self.dead_letter
        if self.dead_letter_encoded is not None:
            dead_letter = names.given("dead_letter", self.dead_letter or None, self.dead_letter_encoded)
        return contract_options.QueueOptions(
            self.expires_after_s, self.ack_timeout_ms, self.max_deliveries, dead_letter, self.exclusive
        )


class KeyOptions(Form):
    model_config = example(history_messages=50, history_age_s=0, capacity_messages=0, capacity_bytes=0)
    history_messages: Annotated[
        int,
        Field(ge=0, le=HISTORY_MESSAGES.high, description="keep the last so many messages, read or not"),
    ] = 0
    history_age_s: Annotated[
        int, Field(ge=0, le=HISTORY_AGE_S.high, description="keep those of the last so many seconds, too")
    ] = 0
    capacity_messages: Annotated[
        int, Field(ge=0, le=CAPACITY_MESSAGES.high, description="at most so many are kept; 0: no limit")
    ] = 0
    capacity_bytes: Annotated[
        int, Field(ge=0, le=CAPACITY_BYTES.high, description="at most so many bytes of bodies are kept; 0: no limit")
    ] = 0
    policy: Annotated[
        Literal["reject", "drop_oldest"],
        Field(description="beyond the capacity: refuse the publish, or let the oldest go"),
    ] = "reject"

    @classmethod
    def of(cls, options: contract_options.KeyOptions) -> Self:
        return cls(**asdict(options))

    def values(self) -> contract_options.KeyOptions:
        return contract_options.KeyOptions(**self.model_dump(include=set(KeyOptions.model_fields)))


class NameQueues(Form):
    model_config = example(queues=["inbox-anna", "inbox-ben"])
    queues: Annotated[list[NameText], FIRST, Field(max_length=limits.QUEUES_PER_CALL_MAX)] = []
    queues_encoded: Annotated[
        list[NameEncoded], FIRST, Field(max_length=limits.QUEUES_PER_CALL_MAX, description="percent-encoded names")
    ] = []


class DeclareQueues(QueueOptions, NameQueues):
    model_config = example(queues=["inbox-anna", "inbox-ben"])


class DropQueues(NameQueues):
    model_config = example(queues=["inbox-anna", "inbox-ben"], if_unused=True)
    if_unused: Annotated[bool, Field(description="Conflict where a session consumes a queue")] = False
    if_empty: Annotated[bool, Field(description="Conflict where a queue has a backlog")] = False


class Dropped(BaseModel):
    model_config = example(dropped=2)
    dropped: Annotated[int, Field(description="queues that are gone")]


class Declared(BaseModel):
    model_config = example(declared=2)
    declared: Annotated[int, Field(description="queues that exist now as asked for")]


class StartFields(Form):
    start: Annotated[
        Literal["now", "earliest", "last", "ago", "offset"],
        Field(
            description="from what is published now; all still kept; the last `value` messages; those of the last"
            " `value` seconds; offset `value`"
        ),
    ] = "now"
    value: OffsetNumber = 0


class BindKeys(StartFields):
    model_config = example(keys=["group-7", "notices"], start="now")
    keys: Annotated[list[NameText], FIRST, Field(max_length=limits.KEYS_PER_CALL_MAX)] = []
    keys_encoded: Annotated[
        list[NameEncoded], FIRST, Field(max_length=limits.KEYS_PER_CALL_MAX, description="percent-encoded names")
    ] = []


class UnbindKeys(Form):
    model_config = example(keys=["group-7"], discard=False)
    keys: Annotated[list[NameText], FIRST, Field(max_length=limits.KEYS_PER_CALL_MAX)] = []
    keys_encoded: Annotated[list[NameEncoded], FIRST, Field(max_length=limits.KEYS_PER_CALL_MAX)] = []
    discard: Annotated[bool, Field(description="drop their backlog too")] = False


class NameKeys(Form):
    keys: Annotated[list[NameText], FIRST, Field(max_length=limits.KEYS_PER_CALL_MAX)] = []
    keys_encoded: Annotated[
        list[NameEncoded], FIRST, Field(max_length=limits.KEYS_PER_CALL_MAX, description="percent-encoded names")
    ] = []


class KeyOffset(BaseModel):
    key: str
    key_encoded: Annotated[str | None, Field(description="percent-encoded, where the name is not UTF-8")] = None
    offset: OffsetNumber
    recovered: Annotated[
        bool | None, Field(description="of a bind with start=offset: False if this offset was not kept any more")
    ] = None
    bound_before: Annotated[
        bool | None,
        Field(description="of a bind with start=offset: True if the queue was bound before; nothing has changed"),
    ] = None


class Offsets(BaseModel):
    """Gives an offset for each key. For binds: the offset from which messages will be seen. For unbinds: the first
    offset that will not be seen; 0 where the key was not bound."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"offsets": [{"key": "group-7", "offset": 42}]}]})
    offsets: list[KeyOffset]


class MessageBody(Form):
    body: Annotated[str | None, Field(max_length=BODY_BYTES_MAX, description="text")] = None
    body_base64: Annotated[str | None, Field(max_length=BODY_BASE64_MAX, description="bytes, in base64")] = None
    headers: HeaderTexts = Field(default_factory=dict)  # A default of {} would be copied at a fourth of a form's cost.
    headers_base64: HeaderTexts = Field(default_factory=dict)


NotBefore = Annotated[
    int,
    Field(
        ge=0,
        le=TIME_S_MAX * 1000,
        description="Unix time in milliseconds; kept at once, published when this time has come; left out: now",
    ),
]
Ttl = Annotated[
    int,
    Field(
        ge=1,
        le=TTL_MS.high,
        description="milliseconds for which it is valid, from when it is published; after that it is not delivered;"
        " left out: for ever",
    ),
]
_LIVE = "only to those that consume now: nothing is stored, and it comes at most once"


class DelayedMessage(MessageBody):
    mandatory: Annotated[bool, Field(description="Unroutable where no queue is bound")] = False
    not_before_ms: NotBefore | None = None
    ttl_ms: Ttl | None = None


class Publish(DelayedMessage):
    model_config = example(body="hello", headers={"from": "anna"})
    live: Annotated[bool, Field(description=_LIVE)] = False


class Sent(MessageBody):
    model_config = example(body="hello")
    live: Annotated[bool, Field(description=_LIVE)] = False
    ttl_ms: Ttl | None = None


class Farewell(MessageBody):
    model_config = example(key="group-7", body="anna went offline", after_s=30)
    key: Annotated[NameText | None, Field(description="where it is published")] = None
    key_encoded: NameEncoded | None = None
    after_s: Annotated[
        int,
        Field(ge=0, le=FAREWELL_AFTER_S.high, description="for so many seconds no session must consume the queue"),
    ] = 0


class MessageOfBatch(MessageBody):
    model_config = example(body="hello")


class PublishBatch(Form):
    model_config = example(messages=[{"body": "one"}, {"body": "two"}])
    messages: Annotated[list[MessageOfBatch], FIRST, Field(min_length=1, max_length=limits.MESSAGES_PER_CALL_MAX)]
    mandatory: bool = False
    not_before_ms: NotBefore | None = None
    live: Annotated[bool, Field(description=_LIVE)] = False
    ttl_ms: Ttl | None = None


class KeyFields(Form):
    key: NameText | None = None
    key_encoded: NameEncoded | None = None


class KeyedMessage(Publish, KeyFields):
    model_config = example(key="group-7", body="hello")


class PublishMany(Form):
    model_config = example(messages=[{"key": "group-7", "body": "one"}, {"key": "group-8", "body": "two"}])
    messages: Annotated[list[KeyedMessage], FIRST, Field(min_length=1, max_length=limits.KEYS_PER_PUBLISH_MAX)]


class Receipt(BaseModel):
    """Answers a publish: the messages are durable once this receipt arrives, unless it was a live one."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"key": "group-7", "offset": 42, "queues": 3, "consumed": 1, "messages": 1, "delayed": False}]
        }
    )
    key: str
    key_encoded: str | None = None
    offset: Annotated[int, Field(description="of the first message; 0: nothing is kept, or it was live")]
    queues: Annotated[int, Field(description="how many it was routed to")]
    consumed: Annotated[int, Field(description="of these, how many are consumed now")]
    messages: int
    delayed: Annotated[bool, Field(description="they wait for the time of not_before_ms, and have no offset yet")]


class Outcome(BaseModel):
    """Tells the outcome of one message: its receipt or its problem."""

    receipt: Receipt | None = None
    problem: dict[str, Any] | None = None


class Outcomes(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "published": 1,
                    "outcomes": [
                        {
                            "receipt": {
                                "key": "group-7",
                                "offset": 42,
                                "queues": 3,
                                "consumed": 1,
                                "messages": 1,
                                "delayed": False,
                            }
                        },
                        {"problem": {"type": "urn:shoal:error:Unroutable", "status": 404, "subject": "group-8"}},
                    ],
                }
            ]
        }
    )
    published: int
    outcomes: Annotated[list[Outcome], Field(description="one for each message, in order")]


class Pull(Form):
    model_config = example(messages=10, wait_s=20, lease_ms=30000)
    messages: Annotated[int, Field(ge=PULL_MESSAGES.low, le=limits.PULL_MESSAGES_MAX)] = limits.PULL_MESSAGES_DEFAULT
    wait_s: Annotated[float, Field(ge=0, le=limits.PULL_WAIT_S_MAX, description="until a message comes")] = 0
    lease_ms: Annotated[int, Field(ge=1, le=LEASE_MS.high, description="what is not acked by then is given again")] = (
        limits.LEASE_MS_DEFAULT
    )


_SHOWN: dict[str, Any] = {
    "id": "group-7+42",
    "key": "group-7",
    "offset": 42,
    "time_ms": 1_790_000_000_000,
    "redelivered": 0,
    "body": "hello",
    "headers": {"from": "anna"},
}


class Message(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_SHOWN]})
    id: Annotated[str, Field(description="key+offset: unique and stable; for acks")]
    key: str
    key_encoded: str | None = None
    offset: int
    time_ms: Annotated[int, Field(description="when it was published, since 1970")]
    redelivered: Annotated[int, Field(description="how often it was given before, as far as known")]
    expires_ms: Annotated[int | None, Field(description="when it expires, since 1970; left out: never")] = None
    body: Annotated[str | None, Field(description="where it is UTF-8")] = None
    body_base64: Annotated[str | None, Field(description="else")] = None
    headers: dict[str, str] | None = None
    headers_base64: dict[str, str] | None = None


class Gap(BaseModel):
    """Says that the queue does not get these messages of a key, which it still had to get."""

    model_config = example(key="group-7", first=40, end=42, why="dropped")
    key: str
    key_encoded: str | None = None
    first: int
    end: Annotated[int, Field(description="first <= offset < end")]
    why: Annotated[
        str, Field(description="dropped: the key was full and drops the oldest; expired: their ttl was over")
    ]


class Messages(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"messages": [_SHOWN]}]})
    messages: list[Message]
    gaps: Annotated[list[Gap] | None, Field(description="of a pull: what the queue does not get any more")] = None


class AckRange(Form):
    model_config = example(key="group-7", first=42, end=44)
    key: NameText | None = None
    key_encoded: NameEncoded | None = None
    first: OffsetNumber
    end: Annotated[int, Field(ge=OFFSET.low, le=OFFSET.high, description="first <= offset < end")]


class Acks(Form):
    model_config = example(ids=["group-7+42", "group-7+43"])
    ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX + 20)]],
        FIRST,
        Field(max_length=limits.ACKS_PER_CALL_MAX, description="of messages, as they came"),
    ] = []
    ranges: Annotated[list[AckRange], FIRST, Field(max_length=limits.ACKS_PER_CALL_MAX)] = []


class Nacks(Acks):
    model_config = example(ids=["group-7+42"], delay_ms=5000)
    delay_ms: Annotated[
        int, Field(ge=NACK_DELAY_MS.low, le=NACK_DELAY_MS.high, description="given again no earlier than after this")
    ] = 0


class Binding(BaseModel):
    """Describes a binding: the queue gets start <= offset < end, and everything below the cursor is done."""

    key: str
    key_encoded: str | None = None
    slice: str
    start: int
    cursor: int
    end: Annotated[int, Field(description="0: still bound")]
    head: Annotated[int, Field(description="the key's next offset")]
    messages: Annotated[int, Field(description="backlog")]
    unacked: Annotated[int, Field(description="of these, consumers have, or gave back with a delay that is not over")]
    full: Annotated[
        bool,
        Field(
            description="as much is unacked as may be of one key, or it was acked with gaps and the slice's memory of"
            " attached queues is full: no consumer of the queue gets more of it now"
        ),
    ]


class KeptFarewell(BaseModel):
    """Describes a queue's farewell, which is published once no session has consumed the queue for a time."""

    model_config = example(key="group-7", after_s=30, due_ms=0)
    key: str
    key_encoded: str | None = None
    after_s: Annotated[int, Field(description="for so many seconds no session must have consumed the queue")]
    due_ms: Annotated[
        int, Field(description="when that is if none comes until then, since 1970; 0: one consumes the queue now")
    ]


class Queue(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "queue": "inbox-anna",
                    "options": {
                        "expires_after_s": 0,
                        "ack_timeout_ms": 0,
                        "max_deliveries": 0,
                        "dead_letter": "",
                        "exclusive": "none",
                    },
                    "bindings": 9,
                    "messages": 2,
                    "body_bytes": 10,
                    "oldest_ms": 1_790_000_000_000,
                    "attached_sessions": 1,
                    "consumed": True,
                    "unacked": 1,
                    "home": "s02",
                    "farewell": {"key": "group-7", "after_s": 30, "due_ms": 0},
                }
            ]
        }
    )
    queue: str
    queue_encoded: str | None = None
    options: QueueOptions
    bindings: int
    messages: Annotated[int, Field(description="backlog, exact")]
    body_bytes: int
    oldest_ms: Annotated[int, Field(description="when the oldest of it was published; 0: none")]
    attached_sessions: int
    consumed: Annotated[bool, Field(description="attached, or messages of it are pulled and not acked")]
    unacked: Annotated[
        int,
        Field(
            description="messages that its consumers have, pulls included, and did not ack, or gave back with a delay"
            " that is not over; .../bindings tells it of each key"
        ),
    ]
    home: Annotated[str, Field(description="the slice of its direct key")]
    farewell: Annotated[KeptFarewell | None, Field(description="if it has one")] = None


class Key(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "key": "group-7",
                    "exists": True,
                    "head": 43,
                    "low": 42,
                    "queues": 3,
                    "body_bytes": 5,
                    "partition": 911,
                    "slice": "s01",
                    "options": {"history_messages": 1},
                }
            ]
        }
    )
    key: str
    key_encoded: str | None = None
    exists: Annotated[bool, Field(description="false: it keeps nothing")]
    head: Annotated[int, Field(description="the next offset")]
    low: Annotated[int, Field(description="the lowest offset still kept")]
    queues: int
    body_bytes: int
    partition: int
    slice: str
    options: KeyOptions


class Purged(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"messages": 2}]})
    messages: Annotated[int, Field(description="dropped from the backlog")]


class PurgedQueue(Purged):
    model_config = example(queue="inbox-anna", messages=3)
    queue: str
    queue_encoded: Annotated[str | None, Field(description="percent-encoded, where the name is not UTF-8")] = None


class PurgedQueues(BaseModel):
    model_config = example(queues=[{"queue": "inbox-anna", "messages": 3}])
    queues: list[PurgedQueue]
