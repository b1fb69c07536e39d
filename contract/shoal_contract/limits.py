"""Bounds that every side of the contract shares. Each with its unit and its reason; a server may set lower ones."""

from typing import Final

NAME_BYTES_MAX: Final = 255
"""Keys and queues. Fits LMDB's 511-byte row keys beside a partition prefix, and one length byte."""

BODY_BYTES_MAX: Final = 1 << 20
"""One message body: the default of docs/concepts.md."""

CHUNK_BYTES_MAX: Final = 2 << 20
"""One serialized chunk: a largest body with its headers, and still one frame."""

CHUNK_MESSAGES_MAX: Final = 4096
"""Messages in one chunk: bounds what a consumer must decode at once."""

CHUNK_HEADERS_MAX: Final = 4096
"""Header fields in one chunk, over all of its messages: with them a chunk has at most 20,480 fields on the wire."""

FRAME_BYTES_MAX: Final = 4 << 20
"""One gRPC message: gRPC's own default. Answers and deliveries fill it."""

REQUEST_BYTES_MAX: Final = CHUNK_BYTES_MAX + (256 << 10)
"""What a server takes in one such message: a largest chunk and more. Each of its callers may have one on its way, which
the transport holds before anyone can count it."""

HANDSHAKE_MS_MAX: Final = 5_000
"""How long a new connection to a gRPC server may take for TLS and HTTP/2 settings: some round trips of a slow
network."""

CALLS_PER_CONNECTION_MAX: Final = 128
"""Calls and streams at a time on one connection to a gRPC server; a client's further ones wait in its own process. One
that has ended counts until it is freed; those beyond are refused then (REFUSED_STREAM: nothing was done). With 115 at a
time no call was refused. HTTP/2 would have 100 at least. The client library has one stream a connection, and short
calls; a program of another language may have a hundred sessions on one."""

CALLS_WAITING_MAX: Final = 8_000
"""New calls in gRPC's own line, of all connections, until a turn of the loop takes or refuses them: about 16 KB each,
1,000 to 3,000 a second. Above it gRPC drops whatever comes; by itself it does so from 1,000 on."""

PATIENCE_S_MIN: Final = 0.01
"""However many wait for a place, who has one may take so long to send: what has arrived is read in a few turns of the
loop."""

BLAME_S: Final = 120.0
BLAMED_MAX: Final = 10_000
"""How long a connection that held up others comes after them, and how many such are remembered."""

SERVED_MAX: Final = 20_000
"""How many connections are remembered that used their places in time: as many as a process has, or so."""

RECEIVED_BYTES_MAX: Final = 128 << 10
"""The bytes that the kernel holds for one gRPC connection and the process has not read yet, which containers count as
memory; the kernel takes twice as much. HTTP/2's windows are smaller, so honest clients do not notice."""

UNREAD_LOOKS: Final = 3
"""What a connection has unread counts as far as it was there at so many looks: a frame that just comes is none."""

UNREAD_LOOK_S: Final = 5.0
BUDGET_LOOK_S: Final = 0.5
MEMORY_LOOK_S: Final = 0.05
"""The time between two looks at connections, in seconds: at most and at least while there is memory, and while it is
short. In the last time the clients on one network can send 50 MB."""

FILES_MAX: Final = 1 << 20
"""The open files that are looked for where there is no limit and they cannot be listed."""

FILES_PER_STEP: Final = 256
STEP_PAUSE_S: Final = 0.0005
"""Open files that are looked at in one go, about 2 ms, and the pause after them: other threads have Python's lock then.
They would not get it in a pause of no length."""

CONNECTIONS_ENDED_PER_LOOK: Final = 4_096
UNREAD_ENDED_BYTES_MIN: Final = 256 << 10
UNREAD_ENDED_BYTES_LEAST: Final = 16 << 10
UNREAD_ENDED_AT_ONCE_BYTES: Final = 32 << 20
"""Connections hung up on in one look where a process holds far too much: those with most that came and is not read, and
so much at least. Less of it is what a few calls have under way; but thousands of connections hold too much with less
each, and then the second counts. Of the third one look is enough: calls that wait hold less, and so do the frames that
dozens of sessions are in the middle of."""

UNREAD_ACCEPT_S: Final = 5.0
UNREAD_PARTS_MAX: Final = 64
"""What came on a connection counts until the calls have ended that were there so long after, as it may be theirs: calls
wait in gRPC's line until their handlers begin. So many looks are told apart for that."""

BUFFERED_BYTES_MAX: Final = 256 << 10
BUFFERED_BYTES_LEAST: Final = 32 << 10
"""gRPC keeps buffers for a connection on which much came at once: as much as came between two looks, up to the first.
Where less than the second came, it is not worth ending the connection."""

BUFFERED_ENDED_PER_LOOK: Final = 16
"""Such connections that end in one look where memory is short and nothing is unread or unsent: 320 a second."""

FUTILE_PARTS: Final = 4
"""No connection ends for memory if all of them hold less than what is too much, divided by this: something else holds
it."""

KERNEL_PARTS: Final = 8
"""What the kernel holds for connections counts as the process's where it exceeds the budget divided by this: slow
clients have something there at all times."""

LOOK_SHARE: Final = 100
LOOK_SHARE_HURRIED: Final = 10
"""Between two looks passes at least so many times the processor time of the last one: looks take 1 % of it, and 10 %
while memory may be short."""

DOORS_S: Final = 1.0
"""How long no new connections come at a time, and then come again at least."""

GIVE_BACK_S: Final = 1.0
"""Between two times that the C library is asked for what is free, while memory is short."""

UNREAD_READ_BYTES: Final = 16
UNREAD_CALL_BYTES: Final = 64
UNREAD_WROTE_BYTES: Final = 32
UNREAD_FREE_SENT_BYTES: Final = 256
UNREAD_FREE_BYTES_PER_S: Final = 64
"""What may come on a connection besides messages: with each message (heads of it and of its frame), with each call
(headers: 44 bytes measured), with each message that is sent to it (window updates: 26), one byte for so many that are
sent (the same, of large ones), and in a second (pings)."""

ABORT_S: Final = 5.0
"""How long the client of a call that a server ends may take to read what was written before. Then it is hung up on."""

FRAME_OPERATIONS_MAX: Final = 1_000
"""Keys and queues in one frame, over all of its steps: about 5 ms of a slice, which others wait for."""

IMPORT_OPERATIONS_MAX: Final = 1_000
"""Queues and keys in one chunk of an import: the same."""

RUN_BYTES: Final = 16
"""A run's id: random, as a producer's."""

LOCATE_KEYS_MAX: Final = 10_000
"""Keys in one Locate."""

LIST_ITEMS_MAX: Final = 1000
"""Names in one page of a list: at most 256 KiB, and a few milliseconds of a slice."""

PRODUCER_BYTES: Final = 16
"""A producer id: random, so unique without coordination."""

PARTITIONS_DEFAULT: Final = 4096
PARTITIONS_MAX: Final = 32_768
"""Partition numbers fit 15 bits: a key id starts with its partition in 16."""

ERROR_TEXT_BYTES_MAX: Final = 1500
"""An error's message, and its subject, in gRPC trailers. A name of 255 escaped bytes is 1,020."""

STATUS_TEXT_BYTES_MAX: Final = 500
"""gRPC's own status text, percent-encoded on the wire. It and both error texts stay below the 8 KiB of trailers that
every gRPC peer takes."""

WINDOW_MESSAGES_DEFAULT: Final = 1_000
WINDOW_MESSAGES_MAX: Final = 100_000
"""Messages that a consumed queue may have unacked on a slice; each costs the slice memory until it is acked."""

WINDOW_BYTES_MAX: Final = 64 << 20
"""The same in bytes of bodies."""

PULL_LEASE_MS_MAX: Final = 3_600_000
"""How long a pull may keep its messages from others, milliseconds: an hour. Longer work acks first, or consumes: a
lease ends with nothing but its time, so a consumer that died would hold its messages for all of it."""

DEADLINE_S_MAX: Final = 604_800
"""The longest that a call may wait, seconds: a week, which no outage should last and which every timer can hold."""

NAMES_PER_CALL_MAX: Final = 1_000_000
"""Names in one call of a library: bounds what one wrong argument (an endless iterator) can take."""

CHUNK_PARSED_AT_ONCE_BYTES_MAX: Final = 160 << 10
"""A chunk up to this size may be parsed without a count: at most 80,000 fields, about 4 ms."""

CHUNK_SUSPECT_TAGS_MAX: Final = 50_000
"""A chunk with more bytes that could begin a field is counted before it is parsed; with fewer that takes about 2 ms."""

PARSED_AT_ONCE_BYTES_MAX: Final = 72 << 10
"""A message up to this size may be parsed without a count: at most 36,864 fields, about 1.7 ms. A frame of 64 KiB of
bodies fits."""

PAYLOAD_BYTES_MAX: Final = 16 << 20
"""Of a journal record, which is a frame or a bounded batch of maintenance; anything longer is damage."""

U32_MAX: Final = (1 << 32) - 1
"""What a uint32 of the wire holds."""

PROCESS_BYTES_MAX: Final = 1 << 40
"""More bytes than a process will have: bounds arguments that count them."""

ERROR_FIGURE_MAX: Final = (1 << 64) - 1
"""What an error's limit and value may be on the wire: a 64-bit number. Larger ones are told as this."""

FIRST_OFFSET: Final = 1
"""Offsets begin at 1, so that 0 can mean none."""

assert CHUNK_BYTES_MAX > BODY_BYTES_MAX
assert CHUNK_BYTES_MAX + (64 << 10) <= REQUEST_BYTES_MAX <= FRAME_BYTES_MAX
assert 2 * ERROR_TEXT_BYTES_MAX * 4 // 3 + 3 * STATUS_TEXT_BYTES_MAX < 7 << 10
assert IMPORT_OPERATIONS_MAX <= FRAME_OPERATIONS_MAX
assert RUN_BYTES == PRODUCER_BYTES
assert PARTITIONS_DEFAULT <= PARTITIONS_MAX
assert WINDOW_MESSAGES_DEFAULT <= WINDOW_MESSAGES_MAX
