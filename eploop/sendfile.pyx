"""sendfile: files to plain sockets and transports by the system call.

In slices, so that a large file does not keep other connections waiting. What the kernel cannot
send that way raises SendfileNotAvailableError, upon which asyncio falls back to reading and
writing.

Source: CPython 3.13 asyncio.unix_events._UnixSelectorEventLoop._sock_sendfile_native; sendfile(2).
"""

import asyncio
import errno
import io
import os
from asyncio.exceptions import SendfileNotAvailableError

from libc.errno cimport EAGAIN

from eploop.core cimport LoopCore
from eploop.errors cimport os_error
from eploop.sockops import wait
from eploop.syscalls cimport sock as sockets
from eploop.transports.stream cimport StreamTransport

cdef enum:
    SLICE_BYTES = 1 << 20


def file_extent(file, Py_ssize_t offset, count):
    """(descriptor, bytes to send) of a regular file.

    Raises:
        SendfileNotAvailableError: It is none.
    """
    try:
        fd = file.fileno()
        size = os.fstat(fd).st_size
    except (AttributeError, io.UnsupportedOperation, OSError) as exc:
        raise SendfileNotAvailableError("not a regular file") from exc
    return fd, (count if count else max(size - offset, 0))


cdef int check(Py_ssize_t rc, Py_ssize_t sent) except -1:
    """Raise what failed: for the first slice, that this file needs another way."""
    if rc == -errno.ENOTCONN:
        not_connected = ConnectionError(errno.ENOTCONN, "socket is not connected")
        raise not_connected from os_error(rc, "sendfile")
    if sent == 0 and rc in (-errno.EINVAL, -errno.ENOSYS, -errno.EOPNOTSUPP):
        raise SendfileNotAvailableError("sendfile() call failed") from os_error(rc, "sendfile")
    raise os_error(rc, "sendfile")


async def to_socket(LoopCore loop, sock, file, Py_ssize_t offset, count):
    """Send a file over a non-blocking socket; the number of bytes sent."""
    cdef:
        int fd = sock.fileno()
        int source
        Py_ssize_t left, n
        Py_ssize_t sent = 0
    source, left = file_extent(file, offset, count)
    try:
        while left > 0:
            n = sockets.send_file(fd, source, offset + sent, <size_t>min(left, SLICE_BYTES))
            if n == 0:
                break
            if n > 0:
                sent += n
                left -= n
                if left:
                    await asyncio.sleep(0)
                    fd = sock.fileno()    # the number may be another's now
            elif n == -EAGAIN:
                fd = await wait(loop, sock, True)
            else:
                check(n, sent)
    finally:
        if sent:
            os.lseek(source, offset + sent, os.SEEK_SET)
    return sent


async def to_transport(LoopCore loop, transport, file, Py_ssize_t offset, count):
    """Send a file over a stream transport, after what it has queued; the number of bytes sent."""
    cdef:
        StreamTransport stream = transport
        int source
        Py_ssize_t left, n
        Py_ssize_t sent = 0
    source, left = file_extent(file, offset, count)
    resume = stream.is_reading()
    stream.lend()
    try:
        stream.pause_reading()
        while left > 0:
            await stream.until_room()
            n = sockets.send_file(stream.fd, source, offset + sent,
                                  <size_t>min(left, SLICE_BYTES))
            if n == 0:
                break
            if n > 0:
                sent += n
                left -= n
                loop.counters.bytes_sent += n
                await asyncio.sleep(0)
            elif n == -EAGAIN:
                stream.would_block()
            else:
                check(n, sent)
    finally:
        stream.take_back()
        if sent:
            os.lseek(source, offset + sent, os.SEEK_SET)
        if resume:
            stream.resume_reading()
    return sent
