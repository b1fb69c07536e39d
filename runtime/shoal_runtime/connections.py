"""Finds the connections that clients have to this process, as the kernel knows them: gRPC and HTTP do not tell them.

The kernel is asked by calls that keep Python's lock. Calls of socket objects release the lock, and must wait to get it
back for as long as a busy loop holds it: looking at 12,000 connections took seconds then. Belongs here: what is asked
of the kernel (tcp(7), socket(7), linux/tcp.h). Not here: what is done with its answers (unread, hang_up).
"""

from __future__ import annotations

import ctypes
import resource
import socket
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from shoal_runtime.limits import FILES_MAX, FILES_PER_STEP, STEP_PAUSE_S

Address = tuple[str, int]
"""The address and port of a connection's other end."""

_FILES: Final = Path("/proc/self/fd")
_MAPPED: Final = "::ffff:"
"""The prefix of an IPv4 address where a socket takes both kinds (RFC 4291, 2.5.5.2); gRPC names it without."""

_SO_MEMINFO: Final = 55
_MEMINFO_BYTES: Final = 36
_READ_AND_WRITE: Final = 0, 5
"""The indexes of SK_MEMINFO_RMEM_ALLOC and SK_MEMINFO_WMEM_QUEUED among its nine u32 (linux/sock_diag.h)."""
_SO_COOKIE: Final = 57
_FIONREAD: Final = 0x541B
_TCP_INFO_BYTES: Final = 136
_ACKED_AND_RECEIVED: Final = 120
"""The offset of tcpi_bytes_acked and then tcpi_bytes_received: u64 in this machine's byte order."""
_CLOSED: Final = 7
_LISTENS: Final = 10
"""The tcpi_state, which is the first byte, of a connection that was cut, and of a socket that takes connections."""
_NOWHERE: Final = struct.pack("=H14x", socket.AF_UNSPEC)
"""The address that connect(2) takes to cut a connection."""
_NAME_BYTES: Final = 28
"""The size of sockaddr_in6, the longest address that TCP has."""
_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_DROP_SYNS: Final = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in (
        (0x30, 0, 0, 13),  # load the byte of flags in TCP's header
        (0x45, 0, 1, 0x02),  # SYN?
        (0x06, 0, 0, 0),  # return 0: nothing of the packet is kept
        (0x06, 0, 0, 0xFFFFFFFF),  # return all of it
    )
)
"""A socket filter that drops attempts to connect (linux/filter.h). Accepted connections inherit it, but never get a
SYN."""


class Connection(NamedTuple):
    """Describes a client's connection. `cookie`: that of its socket, which no other socket ever has. `taken_bytes`: the
    received bytes that this process took. `acked_bytes`: the sent bytes that the client acknowledged. `kernel_bytes`:
    the memory that the kernel holds for both directions; 0 where it does not tell. `port`: the one it came to."""

    file: int
    cookie: int
    address: Address
    taken_bytes: int
    acked_bytes: int
    kernel_bytes: int = 0
    port: int = 0


class _Kernel:
    """Asks the kernel about sockets. Not for two threads at once: its answers lie in these buffers."""

    def __init__(self) -> None:
        self._library = ctypes.PyDLL(None)
        self._info = ctypes.create_string_buffer(_TCP_INFO_BYTES)
        self._memory = (ctypes.c_uint32 * (_MEMINFO_BYTES // 4))()
        self._name = ctypes.create_string_buffer(_NAME_BYTES)
        self._number = ctypes.c_uint64()
        self._size = ctypes.c_uint32()

    def _option(self, file: int, level: int, name: int, value: object, size_bytes: int) -> bool:
        """Reads a socket option into `value`. Returns whether the kernel gave it, and in full size."""
        self._size.value = size_bytes
        told = self._library.getsockopt(file, level, name, value, ctypes.byref(self._size))
        return told == 0 and self._size.value == size_bytes

    def info(self, file: int) -> bytes:
        """Returns the socket's TCP_INFO; b"" if it is no TCP socket."""
        if not self._option(file, socket.IPPROTO_TCP, socket.TCP_INFO, self._info, _TCP_INFO_BYTES):
            return b""
        return self._info.raw

    def cookie(self, file: int) -> int:
        known = self._option(file, socket.SOL_SOCKET, _SO_COOKIE, ctypes.byref(self._number), 8)
        return self._number.value if known else 0

    def waiting_bytes(self, file: int) -> int:
        """Returns the number of received bytes that this process has not taken yet."""
        waiting = ctypes.c_int()
        self._library.ioctl(file, ctypes.c_ulong(_FIONREAD), ctypes.byref(waiting))
        return waiting.value

    def memory_bytes(self, file: int) -> int:
        """Returns the memory that the kernel holds for received and unsent bytes, with its own structures."""
        if not self._option(file, socket.SOL_SOCKET, _SO_MEMINFO, self._memory, _MEMINFO_BYTES):
            return 0
        return sum(self._memory[number] for number in _READ_AND_WRITE)

    def own_port(self, file: int) -> int:
        return self._told(self._library.getsockname, file)[1]

    def other_end(self, file: int) -> Address:
        return self._told(self._library.getpeername, file)

    def _told(self, call: object, file: int) -> Address:
        """Returns the address that `call` gives; ("", 0) if the socket is not connected any more."""
        self._size.value = _NAME_BYTES
        if call(file, self._name, ctypes.byref(self._size)) != 0:  # type: ignore[operator]
            return "", 0
        raw = self._name.raw
        (family,) = struct.unpack_from("=H", raw)
        (port,) = struct.unpack_from("!H", raw, 2)
        if family == socket.AF_INET:
            return socket.inet_ntop(socket.AF_INET, raw[4:8]), port
        if family == socket.AF_INET6:
            return socket.inet_ntop(socket.AF_INET6, raw[8:24]).removeprefix(_MAPPED), port
        return "", 0

    def set(self, file: int, name: int, value: bytes) -> bool:
        """Sets a socket option. Returns whether the socket took it."""
        done = self._library.setsockopt(file, socket.SOL_SOCKET, name, value, ctypes.c_uint32(len(value)))
        return bool(done == 0)

    def cut(self, file: int) -> None:
        """Cuts a connection. The descriptor stays with its owner. What is unsent and what the owner has not taken yet
        is dropped at once: gRPC would still read the latter, and 128 KiB of headers are 20 MiB in its memory. Where the
        kernel cannot do it (gVisor), the connection is shut down, and what is unsent is dropped when it is closed."""
        if self._library.connect(file, _NOWHERE, len(_NOWHERE)) != 0:
            self.set(file, socket.SO_LINGER, struct.pack("=ii", 1, 0))
            self._library.shutdown(file, socket.SHUT_RDWR)

    def drop_syns(self, file: int, drop: bool) -> bool:
        """Makes a socket drop attempts to connect, or stops that. Returns whether the socket took it."""
        if drop:
            program = ctypes.create_string_buffer(_DROP_SYNS, len(_DROP_SYNS))
            given = struct.pack("@HP", len(_DROP_SYNS) // 8, ctypes.addressof(program))
            return self.set(file, _SO_ATTACH_FILTER, given)
        return self.set(file, _SO_DETACH_FILTER, bytes(4))


def _open_files() -> Sequence[int]:
    """Returns the descriptors that this process has open. Where the list cannot be opened, because the process already
    has as many files as it may have, returns all possible descriptors. On systems other than Linux returns none."""
    try:
        return [int(file.name) for file in _FILES.iterdir()]
    except FileNotFoundError:
        return ()
    except OSError:
        files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return range(FILES_MAX if files_max == resource.RLIM_INFINITY else files_max)


class Connections:
    """Finds the connections of this process. For use by one thread at a time."""

    def __init__(self) -> None:
        self._kernel = _Kernel()
        self._doors: dict[int, tuple[int, int]] = {}
        """The files and ports of the sockets that took connections at the last look, by cookie."""

    def look(self, ports: Collection[int] = (), known: Mapping[int, Connection] | None = None) -> Iterator[Connection]:
        """Yields the connections that came to these ports of this process, or by default to any of its ports. It takes
        7 us for each connection that is `known` (by cookie, from an earlier look), 13 us for each other one.

        It opens and closes only the list of files: a process that closes any descriptor of a file loses its locks on
        that file (fcntl(2)), and LMDB has such locks."""
        kernel, known = self._kernel, known or {}
        doors: dict[int, tuple[int, int]] = {}
        new: list[Connection] = []
        own = {port for _, port in self._doors.values()}
        for number, file in enumerate(_open_files()):
            if number % FILES_PER_STEP == FILES_PER_STEP - 1:
                time.sleep(STEP_PAUSE_S)
            cookie, info = kernel.cookie(file), kernel.info(file)
            if not info or not cookie or info[0] == _CLOSED:
                continue
            if info[0] == _LISTENS:
                doors[cookie] = file, kernel.own_port(file)
                own.add(doors[cookie][1])
                continue
            acked, received = struct.unpack_from("=QQ", info, _ACKED_AND_RECEIVED)
            taken = received - kernel.waiting_bytes(file)
            memory = kernel.memory_bytes(file)
            before = known.get(cookie)
            port = before.port if before else kernel.own_port(file)
            address = before.address if before else kernel.other_end(file)
            if not address[0] or kernel.cookie(file) != cookie:
                continue  # The connection ended meanwhile.
            found = Connection(file, cookie, address, taken, acked, memory, port)
            if before or (port in own and (not ports or port in ports)):
                yield found  # At once: what is made of it belongs to the same moment.
            elif port not in own:
                new.append(found)
        self._doors = doors
        yield from (found for found in new if found.port in own and (not ports or found.port in ports))

    def shut_doors(self, shut: bool, ports: Collection[int]) -> bool:
        """Keeps new connections from these ports, or lets them come again. While shut, a client's attempt is not
        answered, and its kernel tries again after a second. Returns whether it worked: a look was made before, and the
        kernel can do it."""
        done = False
        for cookie, (file, port) in self._doors.items():
            if port in ports and self._kernel.cookie(file) == cookie:
                done = self._kernel.drop_syns(file, shut) or done
        return done

    def bound_received(self, port: int, size_bytes: int) -> None:
        """Bounds the received bytes that the kernel holds for a connection. Connections that come to this port from now
        on inherit the bound (socket(7), SO_RCVBUF). The kernel takes twice as much. Otherwise tcp(7) allows up to 32
        MiB for each."""
        for _ in self.look((port,)):
            pass
        for file, own_port in self._doors.values():
            if own_port == port:
                self._kernel.set(file, socket.SO_RCVBUF, struct.pack("=i", size_bytes))

    def shut_down(self, connection: Connection) -> None:
        """Cuts a connection, unless it has ended: its descriptor may be another's by then."""
        if self._kernel.cookie(connection.file) == connection.cookie:
            self._kernel.cut(connection.file)
