"""The forms of transactions, as OpenAPI shows them. Not here: what is done with them (routes_transactions.py)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shoal_ops.http import limits, models
from shoal_ops.http.bounded_json import FIRST
from shoal_ops.http.models import Form, NameEncoded, NameText, example


class QueueOfStep(Form):
    queue: NameText | None = None
    queue_encoded: Annotated[NameEncoded | None, Field(description="percent-encoded name")] = None


class BindStep(models.BindKeys, QueueOfStep):
    model_config = example(queue="inbox-anna", keys=["{room-7}talk"], start="now")


class ConfigureStep(models.KeyOptions, models.NameKeys):
    model_config = example(keys=["{room-7}talk"], history_messages=50)


class UnbindStep(models.UnbindKeys, QueueOfStep):
    model_config = example(queue="inbox-anna", keys=["{room-7}talk"], discard=False)


class AckStep(models.Acks, QueueOfStep):
    model_config = example(queue="inbox-anna", ids=["%7Broom-7%7Dtalk+42"])


class PublishStep(models.DelayedMessage, models.KeyFields):
    model_config = example(key="{room-7}talk", body="hello")


class Step(Form):
    """Describes one step: exactly one of its fields is given."""

    model_config = example(publish={"key": "{room-7}talk", "body": "hello"})
    declare: Annotated[models.DeclareQueues | None, Field(description="as POST /v1/queues")] = None
    configure: Annotated[ConfigureStep | None, Field(description="as PUT /v1/keys/{key}")] = None
    bind: Annotated[BindStep | None, Field(description="as POST /v1/queues/{queue}/bindings")] = None
    unbind: Annotated[UnbindStep | None, Field(description="as POST /v1/queues/{queue}/unbind")] = None
    publish: Annotated[PublishStep | None, Field(description="as POST /v1/keys/{key}/messages, and never live")] = None
    ack: Annotated[AckStep | None, Field(description="of messages that are not acked yet; a Conflict if they are")] = (
        None
    )


class Transaction(Form):
    model_config = example(
        steps=[
            {"bind": {"queue": "inbox-anna", "keys": ["{room-7}talk"]}},
            {"publish": {"key": "{room-7}talk", "body": "anna is here"}},
        ]
    )
    steps: Annotated[list[Step], FIRST, Field(min_length=1, max_length=limits.TRANSACTION_STEPS_MAX)]


class Done(BaseModel):
    """Answers one step: what the call by itself would have answered."""

    declared: int | None = None
    configured: Annotated[int | None, Field(description="keys")] = None
    offsets: Annotated[list[models.KeyOffset] | None, Field(description="for a bind or an unbind")] = None
    receipt: models.Receipt | None = None
    acked: Annotated[int | None, Field(description="messages")] = None


class Committed(BaseModel):
    """Says that all steps are done, in one record."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "steps": [
                        {"offsets": [{"key": "{room-7}talk", "offset": 42}]},
                        {
                            "receipt": {
                                "key": "{room-7}talk",
                                "offset": 42,
                                "queues": 3,
                                "consumed": 1,
                                "messages": 1,
                                "delayed": False,
                            }
                        },
                    ]
                }
            ]
        }
    )
    steps: Annotated[list[Done], Field(description="one for each step, in order")]
