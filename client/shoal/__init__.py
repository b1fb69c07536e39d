"""Connects applications to Shoal: group chat, presence and notices for very many queues. See ../DESIGN.md.

async with shoal.connect("localhost:7400") as broker:
    await broker.declare("inbox-anna")
    await broker.bind("inbox-anna", "group-7")
    await broker.publish("group-7", b"hello")
    async with broker.consume("inbox-anna") as inbox:
        async for message in inbox:
            await message.ack()
"""

from shoal.admin import Admin
from shoal.broker import Broker, connect
from shoal.figures import (
    BindingEntry,
    CheckpointFigures,
    ClusterInfo,
    Counters,
    JournalFigures,
    KeyEntry,
    MemoryFigures,
    MemoryShare,
    Page,
    SliceFigures,
    SliceInfo,
)
from shoal.gaps import Gap
from shoal.inbox import Inbox
from shoal.leases import Backlog, Leases
from shoal.messages import (
    EARLIEST,
    NOW,
    Ago,
    BindingDescription,
    Delivery,
    Done,
    KeyDescription,
    Last,
    Message,
    Offset,
    Processing,
    QueueDescription,
    Receipt,
    Start,
)
from shoal.parts import Part, Parts
from shoal.telling import SliceState, State, StateChange
from shoal.transactions import Transaction, TransactionResult
from shoal.watch_events import (
    Complete,
    CountEvent,
    Joined,
    KeyCount,
    Left,
    MemberCount,
    MemberEvent,
    Members,
    Offline,
    Online,
)
from shoal.watching import CountsWatch, MembersWatch
from shoal_contract.errors import (
    BadCall,
    Conflict,
    Corrupt,
    CrossSlice,
    DeadlineExceeded,
    Fenced,
    InvalidName,
    Malformed,
    NoRights,
    NoSuchQueue,
    NotLeader,
    NotOwner,
    OutcomeUnknown,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    ShoalError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unroutable,
)
from shoal_contract.options import KeyOptions, QueueOptions

__all__ = [
    "Admin",
    "Ago",
    "Backlog",
    "BadCall",
    "BindingDescription",
    "BindingEntry",
    "Broker",
    "CheckpointFigures",
    "ClusterInfo",
    "Complete",
    "Conflict",
    "Corrupt",
    "CountEvent",
    "Counters",
    "CountsWatch",
    "CrossSlice",
    "DeadlineExceeded",
    "Delivery",
    "Done",
    "EARLIEST",
    "Fenced",
    "Gap",
    "Inbox",
    "InvalidName",
    "Joined",
    "JournalFigures",
    "KeyCount",
    "KeyDescription",
    "KeyEntry",
    "KeyOptions",
    "Last",
    "Leases",
    "Left",
    "Malformed",
    "MemberCount",
    "MemberEvent",
    "Members",
    "MembersWatch",
    "MemoryFigures",
    "MemoryShare",
    "Message",
    "NOW",
    "NoRights",
    "NoSuchQueue",
    "NotLeader",
    "NotOwner",
    "Offline",
    "Offset",
    "Online",
    "OutOfRange",
    "OutcomeUnknown",
    "Page",
    "Part",
    "Parts",
    "PermissionDenied",
    "Processing",
    "QueueDescription",
    "QueueOptions",
    "Receipt",
    "ResourceExhausted",
    "ShoalError",
    "SliceFigures",
    "SliceInfo",
    "SliceState",
    "Start",
    "State",
    "StateChange",
    "TooLarge",
    "Transaction",
    "TransactionResult",
    "Unauthenticated",
    "Unavailable",
    "Unroutable",
    "connect",
]
