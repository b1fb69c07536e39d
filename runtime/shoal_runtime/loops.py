"""Provides the event loop of Shoal's processes: a uvloop that hears at once of all events that gRPC has ready.

gRPC's poller writes a byte into a socket for each event. Its handler takes one byte a turn, though it handles every
event that is ready. Where a turn of the loop brings more than one event, bytes pile up. With some 280 bytes the socket
is full and the poller waits: from then on the loop hears of one event a turn, and every call waits for hundreds of
turns. (`PollerCompletionQueue` in gRPC's `_cython/_cygrpc/aio/completion_queue.pyx.pxi`.) Here all bytes but one are
taken before the handler is called.

Belongs here: the loop. Not here: what runs in it (server_process).
"""

from __future__ import annotations

import array
import fcntl
import socket
import termios
from collections.abc import Callable
from functools import partial
from typing import Any

import uvloop

_POLLER = "PollerCompletionQueue"


class Loop(uvloop.Loop):
    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        if isinstance(fd, socket.socket) and _is_of_poller(callback):
            super().add_reader(fd, _take_all_but_one, fd, callback, *args)
        else:
            super().add_reader(fd, callback, *args)


def _is_of_poller(callback: Callable[..., Any]) -> bool:
    while isinstance(callback, partial):
        callback = callback.func
    return type(getattr(callback, "__self__", None)).__name__ == _POLLER


def _take_all_but_one(wakes: socket.socket, handle: Callable[..., Any], *args: Any) -> None:
    waiting = array.array("i", [0])
    fcntl.ioctl(wakes.fileno(), termios.FIONREAD, waiting)
    if waiting[0] > 1:
        wakes.recv(waiting[0] - 1)
    handle(*args)
