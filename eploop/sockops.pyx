"""sock_*: operations on sockets that the caller owns.

Each call is tried first; only when the kernel has nothing to give does it wait, once per refusal.
The call is tried again by the waiting task itself, so a cancelled one has taken nothing.

Source: CPython 3.13 asyncio.selector_events.BaseSelectorEventLoop.
"""

import asyncio
import socket as socket_module

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN

from eploop.addresses cimport from_python, to_python
from eploop.buffers cimport READ_BYTES
from eploop.core cimport LoopCore
from eploop.errors cimport raise_errno
from eploop.errors import os_error_saying
from eploop.handles cimport Runnable
from eploop.readers cimport Descriptor, descriptor_at
from eploop.syscalls cimport sock as sockets

INTERNET = (socket_module.AF_INET, socket_module.AF_INET6)
PLAIN = (*INTERNET, socket_module.AF_UNIX)
UNIX_RETRY_S = 0.001
UNIX_LONGEST_RETRY_S = 0.05


@cython.final
cdef class Wait(Runnable):
    """Ends the wait of one task."""
    cdef object future

    cdef int run(self) except -1:
        if not self.future.done():
            self.future.set_result(None)
        return 0


async def wait(LoopCore loop, sock, bint writable):
    """Wait until `sock` is readable or writable; its descriptor's number, for the next attempt.

    The socket may have been closed meanwhile: -1, whoever has the number now.

    Raises:
        RuntimeError: A transport owns it.
    """
    cdef Descriptor descriptor = descriptor_at(loop.poller, loop.ready, sock.fileno())
    cdef Wait waiter = Wait.__new__(Wait)
    loop.counters.would_blocks += 1
    waiter.future = loop.create_future()
    if writable:
        descriptor.await_writable(waiter, sock)
    else:
        descriptor.await_readable(waiter, sock)
    try:
        await waiter.future
    finally:
        descriptor.forget(waiter)
    return sock.fileno()


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


async def recv(LoopCore loop, sock, Py_ssize_t nbytes):
    """Up to `nbytes` bytes; b"" is the end of the stream."""
    cdef:
        int fd
        Py_ssize_t n
        bytes data
    check_socket(loop, sock)
    if nbytes < 0:
        raise ValueError("negative buffersize in recv")
    if nbytes == 0:
        return b""    # as socket.recv(0); the kernel would have it wait for data
    fd = sock.fileno()
    while True:
        if nbytes <= READ_BYTES:
            # The shared buffer and an exact copy: no large object made to be shrunk.
            n = sockets.recv(fd, loop.shared.read(), <size_t>nbytes)
            if n >= 0:
                return PyBytes_FromStringAndSize(loop.shared.read(), n)
        else:
            data = PyBytes_FromStringAndSize(NULL, nbytes)
            n = sockets.recv(fd, PyBytes_AS_STRING(data), <size_t>nbytes)
            if n >= 0:
                return data if n == nbytes else data[:n]
        if n != -EAGAIN:
            raise_errno(n, "recv")
        fd = await wait(loop, sock, False)


async def recv_into(LoopCore loop, sock, buffer):
    """Receive into a writable buffer; the number of bytes, 0 at the end of the stream."""
    cdef:
        int fd
        Py_ssize_t n
        Py_buffer view
    check_socket(loop, sock)
    fd = sock.fileno()
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        while view.len > 0:
            n = sockets.recv(fd, view.buf, <size_t>view.len)
            if n >= 0:
                return n
            if n != -EAGAIN:
                raise_errno(n, "recv")
            fd = await wait(loop, sock, False)
    finally:
        PyBuffer_Release(&view)
    return 0


async def sendall(LoopCore loop, sock, data):
    """Send all of `data`. After an error or a cancellation nobody knows how much went out."""
    cdef:
        int fd
        Py_ssize_t n
        Py_ssize_t sent = 0
        Py_buffer view
    check_socket(loop, sock)
    fd = sock.fileno()
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while True:
            n = sockets.send(fd, <char *>view.buf + sent, <size_t>(view.len - sent))
            if n >= 0:
                sent += n
                if sent == view.len:
                    return    # also without any: an empty datagram is one
            elif n == -EAGAIN:
                fd = await wait(loop, sock, True)
            else:
                raise_errno(n, "send")
    finally:
        PyBuffer_Release(&view)


async def recvfrom(LoopCore loop, sock, Py_ssize_t nbytes):
    """(up to `nbytes` bytes of one datagram, the sender's address)."""
    check_socket(loop, sock)
    if nbytes < 0:
        raise ValueError("negative buffersize in recvfrom")
    if not has_plain_addresses(sock):
        return await try_and_wait(loop, sock, False, "recvfrom", nbytes)
    buffer = bytearray(nbytes)
    n, address = await receive_from(loop, sock, buffer, nbytes)
    return bytes(memoryview(buffer)[:n]), address


async def recvfrom_into(LoopCore loop, sock, buffer, Py_ssize_t nbytes):
    """(number of bytes, the sender's address); 0 `nbytes` stands for the size of the buffer."""
    check_socket(loop, sock)
    if not has_plain_addresses(sock):
        return await try_and_wait(loop, sock, False, "recvfrom_into", buffer, nbytes)
    return await receive_from(loop, sock, buffer, nbytes)


async def receive_from(LoopCore loop, sock, buffer, Py_ssize_t nbytes):
    cdef:
        int fd = sock.fileno()
        Py_ssize_t n
        Py_buffer view
        sockets.sockaddr_storage address
        sockets.socklen_t size
    if nbytes < 0:
        raise ValueError("negative buffersize in recvfrom_into")
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if nbytes > view.len:
            raise ValueError("nbytes is greater than the length of the buffer")
        while True:
            size = sizeof(address)
            n = sockets.recvfrom(fd, view.buf, <size_t>(nbytes or view.len),
                                 <sockets.sockaddr *>&address, &size)
            if n >= 0:
                return n, to_python(<sockets.sockaddr *>&address, size)
            if n != -EAGAIN:
                raise_errno(n, "recvfrom")
            fd = await wait(loop, sock, False)
    finally:
        PyBuffer_Release(&view)


async def sendto(LoopCore loop, sock, data, address):
    """Send one datagram to `address`; the number of bytes sent."""
    cdef:
        int fd
        Py_ssize_t n
        Py_buffer view
        sockets.sockaddr_storage raw
        sockets.socklen_t size
    check_socket(loop, sock)
    if sock.family == socket_module.AF_UNIX:
        return await try_and_retry(sock.sendto, data, address)
    size = from_python(sock.family, address, &raw) if has_plain_addresses(sock) else 0
    if size == 0:
        if sock.family in INTERNET and isinstance(address, (tuple, list)) and len(address) >= 2:
            resolved = await loop._ensure_resolved(
                address, family=sock.family, type=sock.type, proto=sock.proto, loop=loop)
            address = resolved[0][4]
        return await try_and_wait(loop, sock, True, "sendto", data, address)
    fd = sock.fileno()
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while True:
            n = sockets.sendto(fd, view.buf, <size_t>view.len, <sockets.sockaddr *>&raw, size)
            if n >= 0:
                return n
            if n != -EAGAIN:
                raise_errno(n, "sendto")
            fd = await wait(loop, sock, True)
    finally:
        PyBuffer_Release(&view)


def has_plain_addresses(sock):
    """True if `addresses` knows this socket's family; the socket's own methods know them all."""
    return issubclass(type(sock), socket_module.socket) and sock.family in PLAIN


async def try_and_wait(LoopCore loop, sock, bint writable, method, *args):
    """Call a method of the socket again and again until it does not block."""
    while True:
        try:
            return getattr(sock, method)(*args)
        except BlockingIOError:
            pass
        await wait(loop, sock, writable)


async def accept(LoopCore loop, sock):
    """(connection, address); the connection is a non-blocking socket."""
    cdef:
        sockets.sockaddr_storage address
        sockets.socklen_t size
        int fd, new
    check_socket(loop, sock)
    fd = sock.fileno()
    while True:
        size = sizeof(address)
        new = sockets.accept(fd, <sockets.sockaddr *>&address, &size)
        if new >= 0:
            break
        if new != -EAGAIN:
            raise_errno(new, "accept4")
        fd = await wait(loop, sock, False)
    connection = socket_module.socket(sock.family, sock.type, sock.proto, fileno=new)
    connection.setblocking(False)
    return connection, to_python(<sockets.sockaddr *>&address, size)


async def connect(LoopCore loop, sock, address):
    """Connect `sock`, a non-blocking socket, to `address`."""
    cdef int rc
    check_socket(loop, sock)
    if sock.family in INTERNET:
        resolved = await loop._ensure_resolved(
            address, family=sock.family, type=sock.type, proto=sock.proto, loop=loop)
        address = resolved[0][4]
    elif sock.family == socket_module.AF_UNIX:
        return await try_and_retry(sock.connect, address)
    try:
        sock.connect(address)
        return
    except (BlockingIOError, InterruptedError):
        # connect(2), EINTR: the connection is being made all the same.
        pass
    rc = sockets.pending_error(await wait(loop, sock, True))
    if rc < 0:
        raise os_error_saying(-rc, f"Connect call failed {address}")


async def try_and_retry(call, *args):
    """`call(*args)` on a unix socket, later again if it blocks.

    EAGAIN means that the peer's backlog or queue is full, which no event of ours will report: see
    connect(2), and unix_dgram_poll in the kernel, which looks at a connected peer only.
    """
    delay = UNIX_RETRY_S
    while True:
        try:
            return call(*args)
        except BlockingIOError:
            await asyncio.sleep(delay)
            delay = min(2 * delay, UNIX_LONGEST_RETRY_S)
