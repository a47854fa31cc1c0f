"""sock_*: operations on sockets that the caller owns.

Each call is tried first; only when the kernel has nothing to give does it wait, once per refusal.
The call is tried again by the waiting task itself, so a cancelled one has taken nothing.

Source: CPython 3.13 asyncio.selector_events.BaseSelectorEventLoop.
"""

import socket as socket_module

cimport cython

from eploop.core cimport LoopCore
from eploop.errors cimport os_error
from eploop.handles cimport Runnable
from eploop.readers cimport Descriptor, descriptor_at
from eploop.syscalls cimport sock as sockets


@cython.final
cdef class Wait(Runnable):
    """Ends the wait of one task."""
    cdef object future

    cdef int run(self) except -1:
        if not self.future.done():
            self.future.set_result(None)
        return 0


async def wait(LoopCore loop, int fd, bint writable):
    """Wait until `fd` is readable or writable.

    Raises:
        RuntimeError: A transport owns it.
    """
    cdef Descriptor descriptor = descriptor_at(loop.poller, loop.ready, fd)
    cdef Wait waiter = Wait.__new__(Wait)
    waiter.future = loop.create_future()
    if writable:
        descriptor.await_writable(waiter)
    else:
        descriptor.await_readable(waiter)
    try:
        await waiter.future
    finally:
        descriptor.forget(waiter)


def check_socket(LoopCore loop, sock):
    """Raise what asyncio raises for a socket that cannot be awaited.

    Raises:
        TypeError: A TLS socket.
        ValueError: A blocking one, in debug mode.
    """
    if type(sock) is not socket_module.socket and hasattr(sock, "_sslobj"):
        raise TypeError("Socket cannot be of type SSLSocket")
    if loop.get_debug() and sock.gettimeout() != 0:
        raise ValueError("the socket must be non-blocking")


async def connect(LoopCore loop, sock, address):
    """Connect `sock`, a non-blocking socket, to `address`."""
    cdef int rc
    check_socket(loop, sock)
    if sock.family in (socket_module.AF_INET, socket_module.AF_INET6):
        resolved = await loop._ensure_resolved(
            address, family=sock.family, type=sock.type, proto=sock.proto, loop=loop)
        address = resolved[0][4]
    try:
        sock.connect(address)
        return
    except (BlockingIOError, InterruptedError):
        # connect(2), EINTR: the connection is being made all the same.
        pass
    await wait(loop, sock.fileno(), True)
    rc = sockets.pending_error(sock.fileno())
    if rc < 0:
        raise OSError(-rc, f"Connect call failed {address}")
