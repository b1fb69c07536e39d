"""Defines the bounds of what runs in every process, each with its unit and its reason."""

from typing import Final

HANDSHAKE_MS_MAX: Final = 5_000
"""The time that a new connection to a gRPC server may take for TLS and HTTP/2 settings, in milliseconds: some round
trips of a slow network."""

CALLS_PER_CONNECTION_MAX: Final = 128
"""The number of calls and streams at a time on one connection to a gRPC server; further calls of a client wait in its
own process. A call that has ended counts until it is freed; calls beyond the bound are then refused (REFUSED_STREAM:
nothing was done). With 115 at a time no call was refused. HTTP/2 recommends at least 100. The client library has one
stream per connection, and short calls; a program in another language may have a hundred sessions on one connection."""

METADATA_BYTES_MAX: Final = 2 << 10
"""The bytes of a call's headers as HTTP/2 counts them: 32 for each field, its name and its value. gRPC keeps 170 bytes
for each field, which may come as one byte. A call of ours has 440 to 540; a token of 1 KB and the headers of tracing
fit besides. A call with more is answered with RESOURCE_EXHAUSTED and a list of its headers."""

SETTINGS_MS_MAX: Final = 5_000
"""The time that a client may take to acknowledge the server's settings, in milliseconds. METADATA_BYTES_MAX is one of
them: gRPC applies it once it is acknowledged. gRPC's own default is 60 s."""

CALL_WAITING_BYTES: Final = 44 << 10
CALLS_WAITING_PARTS: Final = 4
CALLS_WAITING_MAX: Final = 8_000
"""The memory of a new call in gRPC's own line, until a turn of the loop takes or refuses it, in bytes; it has the most
headers. The line of all connections may hold the memory budget divided by the second number, and no more calls than the
third; the loop takes 1,000 to 3,000 a second. Above this gRPC drops every new call; its own default is 1,000 calls."""

IDLE_MS_MAX: Final = 90_000
"""The time after which a connection without calls ends, in milliseconds. The next call opens a new one, a round trip
later. A call that crosses the end is lost (UNAVAILABLE), so this is no period in which programs usually poll."""

PATIENCE_S_MIN: Final = 0.01
"""The least time that the holder of a place has to send, in seconds, however many wait for a place: what has arrived is
read in a few turns of the loop."""

BLAME_S: Final = 120.0
BLAMED_MAX: Final = 10_000
"""The seconds for which a connection that held up others comes after them, and the number of such connections that are
remembered."""

SERVED_MAX: Final = 20_000
"""The number of connections that used their places in time and are remembered: about as many as a process has."""

RECEIVED_BYTES_MAX: Final = 128 << 10
"""The bytes that the kernel holds for one gRPC connection until the process reads them. Containers count them as
memory; the kernel takes twice as much. HTTP/2's windows are smaller, so honest clients do not notice."""

UNREAD_LOOKS: Final = 3
"""The number of looks in a row at which bytes must be unread before they count: a frame that is still arriving does not
count."""

UNREAD_LOOK_S: Final = 5.0
BUDGET_LOOK_S: Final = 0.5
MEMORY_LOOK_S: Final = 0.02
"""The time between two looks at connections, in seconds. The first two are the most and the least while there is enough
memory; the third applies while memory is short. In the third, gRPC can take up to 30 MiB."""

NEW_S: Final = SETTINGS_MS_MAX / 1_000 + 1.0
NEW_HELD_TIMES: Final = 170
NEW_UNREAD_BYTES_MIN: Final = 4 << 10
NEW_UNREAD_BYTES_LARGE: Final = 16 << 10
NEW_GREW_PARTS: Final = 32
"""So many seconds after a look first found it, a connection has acknowledged the server's settings or ended. Before,
its headers have no bound, and gRPC holds up to NEW_HELD_TIMES as many bytes as came. So such a connection ends first
while memory is short, if at least so many of its bytes are unread (a call's headers have 2 KB at most), and if
the process grew by its budget divided by NEW_GREW_PARTS within that time."""

FILES_MAX: Final = 1 << 20
"""The number of file descriptors that are tried where the process has no limit and its open files cannot be listed."""

FILES_PER_STEP: Final = 256
STEP_PAUSE_S: Final = 0.0005
"""The number of open files that are looked at in one go, about 2 ms, and the pause after them, in seconds. In the pause
other threads have Python's lock. They would not get it in a pause of no length."""

CONNECTIONS_ENDED_PER_LOOK: Final = 4_096
UNREAD_ENDED_BYTES_MIN: Final = 256 << 10
UNREAD_ENDED_BYTES_LEAST: Final = 16 << 10
UNREAD_ENDED_AT_ONCE_BYTES: Final = 32 << 20
"""The most connections that are shut down in one look where a process holds far too much: those with most unread bytes,
or those without calls. Each of the first has at least UNREAD_ENDED_BYTES_MIN: a few calls have less under way. Where
thousands of connections hold less each but too much together, UNREAD_ENDED_BYTES_LEAST is enough.
UNREAD_ENDED_AT_ONCE_BYTES count at their first look: calls that wait hold less, and so do dozens of sessions that are
in the middle of a frame."""

UNREAD_ACCEPT_S: Final = 5.0
UNREAD_PARTS_MAX: Final = 64
"""Bytes that came on a connection count until all calls have ended that began up to UNREAD_ACCEPT_S after them: the
bytes may be theirs, as calls wait in gRPC's line until their handlers begin. For this, the bytes of at most
UNREAD_PARTS_MAX looks are kept apart."""

BURST_S: Final = 0.05
BURST_MESSAGE_BYTES_MAX: Final = 72 << 10
"""The messages of a connection that handlers read within so many seconds came at once. Of one message no more does
than a window of HTTP/2, however large it is."""

BUFFERED_BYTES_MAX: Final = 256 << 10
"""gRPC keeps buffers for a connection on which much came at once: as many bytes as came, up to this."""

PORT_CROWDED_PARTS: Final = 16
PORT_ROOM_PARTS: Final = 4
"""A port is nearly full when less room is left than its bound of connections divided by the first number. Then
connections without calls end, the oldest first, until there is room for the bound divided by the second number."""

RESTS_S: Final = 2.0
"""A connection may end for want of calls once it had none for so many seconds. A call may wait in gRPC's line for as
long before its handler begins."""

CONNECTION_HELD_BYTES: Final = 17 << 10
CALL_HELD_BYTES: Final = 36 << 10
"""What a process holds at least for each connection, and for each of its calls that has a handler: a session that does
nothing. Measured with 1,500 idle connections of a redirector (2 KiB of it for IDLE_MS_MAX), and 1,200 sessions on ten
connections of a node."""

SHARE_WAIT_S: Final = 3.0
SHARE_PUT_OFF_S: Final = 10.0
SHARE_ENDED_MAX: Final = 512
SHARE_FUTILE_PARTS: Final = 2
SHARE_FELL_PARTS: Final = 32
SHARE_FALL_S: Final = 1.0
SHARE_GREW_PARTS: Final = 16
SHARE_RESTS_S: Final = 60.0
"""Where it is not known what connections hold, at most SHARE_ENDED_MAX end by chance, and the next ones SHARE_WAIT_S
later: the memory of the first is free by then. Nor does one end by chance so soon after others of which more is known,
until memory is short for SHARE_PUT_OFF_S; nor while it becomes free, by the budget divided by SHARE_FELL_PARTS within
SHARE_FALL_S. None ends if all together hold less than the excess divided by SHARE_FUTILE_PARTS. If what is held did not
fall by the budget divided by SHARE_FELL_PARTS, and did not grow by the budget divided by SHARE_GREW_PARTS, none ends
for SHARE_RESTS_S: they do not hold the memory. That is longer than a slice needs to notice memory that stays."""

FUTILE_PARTS: Final = 4
UNKNOWN_TOLD_PER_S: Final = 0.1
"""No connection ends for memory if all of them together hold less than the excess divided by this: something else holds
the memory then. The log tells it so many times a second."""

KERNEL_PARTS: Final = 8
"""Memory that the kernel holds for connections counts as the process's only above the budget divided by this: slow
clients have some there at all times."""

LOOK_SHARE: Final = 100
LOOK_SHARE_HURRIED: Final = 10
LOOK_SHARE_GROWS: Final = 5
"""The time between two looks is at least so many times the processor time of the last look: looks take 1 % of the
processor, 10 % while memory may be short, and 20 % while a process grows that should not."""

DOORS_S: Final = 1.0
"""The seconds for which new connections are kept out at a time, and then let in again at least."""

GIVE_BACK_S: Final = 1.0
"""The seconds between two requests to the C library to return free memory, while memory is short."""

COLLECT_S: Final = 60.0
"""The seconds between two runs of the garbage collector over all objects, while memory is short that no connection
accounts for. One takes 0.15 s for 280 MiB of small objects, and nothing else runs meanwhile."""

UNREAD_READ_PARTS: Final = 1_024
UNREAD_SHARE_BYTES_MAX: Final = 1 << 20
"""What is read of a connection, divided by the first, may seem unread, up to the second: clients decide how many frames
a message comes in."""

UNREAD_READ_BYTES: Final = 5
UNREAD_CALL_BYTES: Final = 44
UNREAD_CALL_BYTES_LEAST: Final = 15
UNREAD_WROTE_BYTES: Final = 26
UNREAD_FREE_SENT_BYTES: Final = 256
UNREAD_FREE_BYTES_PER_S: Final = 64
"""The bytes that may come on a connection besides messages and the heads of their frames: with each message (its
prefix), with each call (headers of gRPC's own clients, as measured; the least is a frame with six bytes), with each
message that is sent to the client (window updates, as measured, whatever its size), one byte for so many bytes that are
sent (window updates of large messages), and each second (pings)."""

ABORT_S: Final = 5.0
"""The seconds that the client of a call that a server ends may take to read what was written before. Then its
connection is shut down."""
