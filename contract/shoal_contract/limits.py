"""Defines the bounds that all sides of the contract share, with unit and reason. A server may set lower ones."""

from typing import Final

NAME_BYTES_MAX: Final = 255
"""The bytes of a key or queue name. It fits LMDB's 511-byte row keys beside a partition prefix, and one length byte."""

BODY_BYTES_MAX: Final = 1 << 20
"""The bytes of one message body: the default of docs/concepts.md."""

CHUNK_BYTES_MAX: Final = 2 << 20
"""The bytes of one serialized chunk: a largest body with its headers, and still one frame."""

CHUNK_MESSAGES_MAX: Final = 4096
"""The number of messages in one chunk: it bounds what a consumer must decode at once."""

CHUNK_HEADERS_MAX: Final = 4096
"""The number of header fields in one chunk, over all of its messages: a chunk then has at most 20,480 fields on the
wire."""

FRAME_BYTES_MAX: Final = 4 << 20
"""The bytes of one gRPC message: gRPC's own default. Answers and deliveries fill it."""

REQUEST_BYTES_MAX: Final = CHUNK_BYTES_MAX + (256 << 10)
"""The bytes of one gRPC message that a server takes: a largest chunk and more. Each caller may have one on its way,
which the transport holds before the server can count it."""

FRAME_OPERATIONS_MAX: Final = 1_000
"""The number of keys and queues in one frame, over all of its steps: about 5 ms of a slice, while others wait."""

DROP_IF_EMPTY_OPERATIONS: Final = 10
"""Operations that the drop of a queue counts as if the queue must be empty: its bindings are looked at."""

IMPORT_OPERATIONS_MAX: Final = 1_000
"""The number of queues and keys in one chunk of an import, for the same reason."""

RUN_BYTES: Final = 16
"""The bytes of an import run's id, which is random, as a producer's is."""

DESCRIBE_BINDINGS_SUBJECT: Final = "bindings per describe"
"""The subject of a ResourceExhausted that refuses a Describe because of the bindings of all its queues together: fewer
queues may be described. The client library asks so."""

LOCATE_KEYS_MAX: Final = 10_000
"""The number of keys in one Locate."""

LIST_ITEMS_MAX: Final = 1000
"""The number of names in one page of a list: at most 256 KiB, and a few milliseconds of a slice's time."""

PRODUCER_BYTES: Final = 16
"""The bytes of a producer id, which is random, so unique without coordination."""

PARTITIONS_DEFAULT: Final = 4096
PARTITIONS_MAX: Final = 32_768
"""The default and the largest number of partitions. Partition numbers fit 15 bits: a key id begins with its partition
in 16 bits."""

SLICES_MAX: Final = 1_000
"""The number of slices of a cluster. What asks all of them opens a connection to each; a process has 1,024 open files
where its system does not give it more."""

ERROR_TEXT_BYTES_MAX: Final = 1500
"""The bytes of an error's message, and of its subject, in gRPC trailers. A name of 255 escaped bytes takes 1,020."""

STATUS_TEXT_BYTES_MAX: Final = 500
"""The bytes of gRPC's own status text, which is percent-encoded on the wire. This text and both error texts stay below
the 8 KiB of trailers that every gRPC peer takes."""

WINDOW_MESSAGES_DEFAULT: Final = 1_000
WINDOW_MESSAGES_MAX: Final = 100_000
"""The number of messages that a consumed queue may have unacked on a slice, by default and at most. Each costs the
slice memory until it is acked."""

KEY_UNACKED_MAX: Final = 4096
"""The number of messages of one key that a queue may have unacked, over all that consume it or pull from it, whatever
their windows. Those that were nacked with a delay that is not over count, and stretches of messages that were acked
above unacked ones as well: the slice keeps each until what lies below is acked, and in whatever order acks come there
are no more than this."""

WINDOW_BYTES_DEFAULT: Final = 1 << 20
WINDOW_BYTES_MAX: Final = 64 << 20
"""The same bound in bytes of bodies."""

PULL_LEASE_MS_MAX: Final = 3_600_000
"""The time that a pull may keep its messages from others, in milliseconds: an hour. For longer work, ack first, or
attach instead. A lease ends only when its time is over, so a dead consumer holds its messages for all of that time."""

NACK_DELAY_MS_MAX: Final = 86_400_000
"""The time for which a nack may keep a message from being given again, in milliseconds: a day. Until then the slice
keeps it in memory."""

MAX_DELIVERIES_MAX: Final = 1_000_000
"""The highest bound for deliveries of a message that a queue may have: a message that is given again at every tick of
the slice reaches it in a few hours."""

ACK_TIMEOUT_MS_MIN: Final = 100
"""The least ack timeout of a queue, besides 0: each costs the slice work when it is over, again and again."""

DEAD_LETTER_BYTES_MAX: Final = 200
"""The bytes of a dead-letter key: a queue's options take at most 255 bytes in its row."""

FAREWELL_BYTES_MAX: Final = 64 << 10
"""The bytes of a farewell, its headers included: a slice keeps one for each of very many queues."""

FAREWELL_AFTER_S_MAX: Final = 86_400
"""The longest time that a farewell may wait after the last session has left its queue, in seconds: a day. A new leader
begins it anew, so longer times would hardly ever be kept."""

DEADLINE_S_MAX: Final = 604_800
"""The time that a call may wait, in seconds: a week. No outage should last that long, and every timer can hold it."""

TIME_S_MIN: Final = 946_684_800
"""The smallest absolute time, in seconds since 1970: the beginning of the year 2000. A smaller number is meant as
seconds from now, or is of another unit."""

TIME_S_MAX: Final = 253_402_300_799
"""The largest absolute time, in seconds since 1970: the end of the year 9999. A larger number is of another unit."""

NAMES_PER_CALL_MAX: Final = 1_000_000
"""The number of names in one call of a library: it bounds what one wrong argument (an endless iterator) can take."""

CHUNK_PARSED_AT_ONCE_BYTES_MAX: Final = 160 << 10
"""A chunk up to this size may be parsed without a count: at most 80,000 fields, about 4 ms."""

CHUNK_SUSPECT_TAGS_MAX: Final = 50_000
"""If more bytes of a chunk than this could begin a field, its fields are counted before it is parsed. With fewer such
bytes, parsing takes about 2 ms."""

PARSED_AT_ONCE_BYTES_MAX: Final = 72 << 10
"""A message up to this size may be parsed without a count: at most 36,864 fields, about 1.7 ms. A frame of 64 KiB of
bodies fits."""

PAYLOAD_BYTES_MAX: Final = 16 << 20
"""The bytes of a journal record's payload, which is a frame or a bounded batch of maintenance. Anything longer is
damage."""

U32_MAX: Final = (1 << 32) - 1
"""The largest number that a uint32 of the wire holds."""

PROCESS_BYTES_MAX: Final = 1 << 40
"""More bytes than a process will have: it bounds arguments that count bytes."""

ERROR_FIGURE_MAX: Final = (1 << 64) - 1
"""The largest limit and value of an error on the wire: a 64-bit number. Larger figures are sent as this one."""

FIRST_OFFSET: Final = 1
"""Offsets begin at 1, so that 0 can mean none."""

TTL_MS_MAX: Final = 366 * 86_400_000
"""The longest time to live of a message: a year. A longer one is most likely in another unit."""

assert CHUNK_BYTES_MAX > BODY_BYTES_MAX
assert CHUNK_BYTES_MAX + (64 << 10) <= REQUEST_BYTES_MAX <= FRAME_BYTES_MAX
assert 2 * ERROR_TEXT_BYTES_MAX * 4 // 3 + 3 * STATUS_TEXT_BYTES_MAX < 7 << 10
assert IMPORT_OPERATIONS_MAX <= FRAME_OPERATIONS_MAX
assert RUN_BYTES == PRODUCER_BYTES
assert PARTITIONS_DEFAULT <= PARTITIONS_MAX
assert WINDOW_MESSAGES_DEFAULT <= WINDOW_MESSAGES_MAX
assert WINDOW_MESSAGES_DEFAULT <= KEY_UNACKED_MAX >= CHUNK_MESSAGES_MAX
assert WINDOW_BYTES_DEFAULT <= WINDOW_BYTES_MAX
