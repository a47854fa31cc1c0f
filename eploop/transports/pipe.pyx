"""Pipes, FIFOs, terminals and other character devices; also sockets used in one direction.

How the kernel tells, pipe(7), epoll(7), tty_ioctl(4):

* The end of a pipe is a hang-up (HUP), reported once with whatever data is left.
* Its reader's end is ERR at the writer's side.
* The master of a pseudo-terminal reads EIO once the slave's last descriptor is closed.

Source: CPython 3.13 asyncio.unix_events._UnixReadPipeTransport, _UnixWritePipeTransport.
"""

import asyncio
import os
from asyncio.constants import LOG_THRESHOLD_FOR_CONNLOST_WRITES
from asyncio.log import logger

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EIO, EPIPE
from libc.stdint cimport uint32_t

from eploop.buffers cimport WriteQueue, check_bytes_like, immutable
from eploop.core cimport LoopCore
from eploop.errors cimport os_error
from eploop.handles cimport copy_context
from eploop.poller cimport EDGE, LEVEL, ONESHOT
from eploop.receivers cimport Receiver, receiver_for
from eploop.syscalls cimport fd as descriptors, sock
from eploop.syscalls.epoll cimport (
    EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP,
)
from eploop.transports.base cimport Transport
from eploop.transports.pipe_end cimport CHARACTER, FIFO, SOCKET, PipeEnd, end_of

cdef enum:
    VECTOR_PARTS = 64       # buffers handed to one writev

cdef uint32_t READ_EVENTS = EPOLLIN | EPOLLRDHUP
cdef uint32_t END_EVENTS = EPOLLRDHUP | EPOLLHUP | EPOLLERR


def make_read_pipe_transport(loop, pipe, protocol, waiter=None, extra=None):
    """A transport that reads from the file object `pipe`, which it owns from now on.

    Args:
        waiter: A future that gets its result once connection_made() was called.

    Raises:
        ValueError: `pipe` is a regular file, a folder or a block device; it stays the caller's.
    """
    cdef ReadPipeTransport transport = ReadPipeTransport.__new__(ReadPipeTransport)
    transport._extra = {"pipe": pipe} if extra is None else {**extra, "pipe": pipe}
    transport.open(loop, end_of(pipe), protocol, copy_context())
    transport._waiter = waiter
    transport.enqueue()
    return transport


def make_write_pipe_transport(loop, pipe, protocol, waiter=None, extra=None):
    """A transport that writes to the file object `pipe`: see `make_read_pipe_transport`."""
    cdef WritePipeTransport transport = WritePipeTransport.__new__(WritePipeTransport)
    transport._extra = {"pipe": pipe} if extra is None else {**extra, "pipe": pipe}
    transport.open(loop, end_of(pipe), protocol, copy_context())
    transport._waiter = waiter
    transport.enqueue()
    return transport


@cython.final
cdef class ReadPipeTransport(Transport):
    """The reading end of a pipe: asyncio.ReadTransport."""

    @property
    def __class__(self):
        return asyncio.ReadTransport

    cdef int open(self, LoopCore loop, PipeEnd end, object protocol, object context) except -1:
        """Register; raises without having changed anything."""
        cdef uint32_t interest = READ_EVENTS
        loop._check_closed()
        if loop.poller.mode == EDGE:
            interest |= EPOLLET
        elif loop.poller.mode == ONESHOT:
            interest |= EPOLLONESHOT
        self._armed = True
        self._loop = loop
        self._to_the_end = end.kind != FIFO
        self._receiver = receiver_for(protocol, context, loop.shared)
        self.fd = end.file.fileno()
        try:
            end.watch(loop, self, interest)
            os.set_blocking(self.fd, False)
        except BaseException:
            end.give_back(loop, self)
            raise
        self._end = end
        self._readable = end.never_blocks
        return self.begin(loop, protocol, context, None)

    # ---- registration

    cdef int _rearm(self) except -1:
        """Ask the kernel for what is wanted now, if it does not know."""
        cdef int mode = self._loop.poller.mode
        if mode == EDGE or self.fd < 0 or not self._end.watched or not self.wants_to_read():
            return 0
        if mode == ONESHOT:
            if not self._armed and not self._readable:
                self._armed = True
                self._loop.poller.modify(self, READ_EVENTS | EPOLLONESHOT)
        elif not self.interest & EPOLLIN:
            self._loop.poller.modify(self, READ_EVENTS)
        return 0

    cdef int on_io(self, uint32_t events) except -1:
        self._readable = True
        self._armed = False
        if events & END_EVENTS:
            self._hung_up = True
        if self.wants_to_read():
            return self.enqueue()
        if self._loop.poller.mode == LEVEL:
            # It would come again at once, and a hang-up cannot be masked.
            return self._loop.poller.suspend(self)
        return 0

    # ---- one turn

    cdef int run(self) except -1:
        self._queued = False
        if self.fd < 0:
            return 0
        if not self._made:
            self.call_connection_made()
            if self._readable and self.wants_to_read():
                return self.enqueue()       # after whoever waits for the connection
            return self._rearm()
        try:
            if self._readable and self.wants_to_read():
                self._read_once()
        finally:
            self._rearm()
        return 0

    cdef bint wants_to_read(self) noexcept:
        return not (self._paused or self._closing)

    cdef int _read_once(self) except -1:
        cdef:
            Receiver receiver = self._receiver
            char *start = NULL
            Py_ssize_t room = 0
            Py_ssize_t n = 0
        try:
            receiver.space(&start, &room)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            return self.fatal(exc, "Fatal error: " + receiver.failed())
        if not self.wants_to_read():
            return receiver.unused()
        n = descriptors.read(self.fd, start, <size_t>room)
        if n <= 0:
            receiver.unused()
            self._readable = False
            return self._read_eof() if n == 0 else self._failed(n)
        self._loop.counters.bytes_received += n
        self._readable = self._holds_more(n, room)
        try:
            receiver.filled(n)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            # As in asyncio, the connection goes on.
            self._report_call("data_received", exc)
        finally:
            # The protocol may have asked for more or for nothing; the rest waits for a turn.
            if self._readable and self.wants_to_read():
                self.enqueue()
        return 0

    cdef bint _holds_more(self, Py_ssize_t n, Py_ssize_t room) noexcept:
        """May there be more, of which the kernel will not tell, after a read of `n` bytes?"""
        if n == room or self._hung_up or self._to_the_end:
            return True
        # pipe(7): a writer with O_DIRECT writes packets, each of which is one read.
        return self._loop.poller.mode == EDGE and descriptors.unread(self.fd) > 0

    cdef int _failed(self, int rc) except -1:
        if rc == -EAGAIN:
            self._loop.counters.would_blocks += 1
            return 0
        if rc == -EIO and self._end.kind == CHARACTER and descriptors.is_pty_master(self.fd):
            return self._read_eof()
        return self.fatal(os_error(rc, "read"), "Fatal read error on pipe transport")

    cdef int _read_eof(self) except -1:
        if self._loop.get_debug():
            logger.info("%r was closed by peer", self)
        self._closing = True
        try:
            # There is no other half to keep open, whatever it returns.
            self._receiver.eof()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._report_call("eof_received", exc)
        finally:
            if not self._lost:
                self.finish(None)
        return 0

    cdef int _report_call(self, str method, object exc) except -1:
        self._loop.call_exception_handler({
            "message": f"Exception in callback {self._protocol!r}.{method}()",
            "exception": exc,
            "transport": self,
            "protocol": self._protocol,
        })
        return 0

    def pause_reading(self):
        """No data_received() until `resume_reading`. No system call."""
        if not self._closing:
            self._paused = True

    def resume_reading(self):
        """Undo `pause_reading`; data that waits is delivered in a later turn, never from here."""
        if self._closing or not self._paused:
            return
        self._paused = False
        if self._readable:
            self.enqueue()
        else:
            self._rearm()

    def is_reading(self):
        return not self._closing and not self._paused

    def set_protocol(self, protocol):
        """Hand the pipe to `protocol`; takes effect from the next read."""
        self._protocol = protocol
        if self.fd >= 0:
            self._receiver = receiver_for(protocol, self._context, self._loop.shared)

    # ---- the end

    def close(self):
        """Read no more and close. connection_lost(None) follows."""
        if not self._closing:
            self._closing = True
            self.finish(None)

    cdef int release(self) except -1:
        if self.fd >= 0:
            self._loop.counters.transports -= 1
            self._receiver = None
            self._end.let_go(self._loop, self)
        return 0

    def __repr__(self):
        info = ["ReadPipeTransport"]
        if self.fd < 0:
            info.append("closed")
        else:
            if self._closing:
                info.append("closing")
            info.append(f"fd={self.fd}")
            info.append("open polling" if self.wants_to_read() else "open idle")
        return f"<{' '.join(info)}>"


@cython.final
cdef class WritePipeTransport(Transport):
    """The writing end of a pipe: asyncio.WriteTransport.

    Like asyncio's, it ends when its reader does, even if nothing is being written. A socket that
    is written to ends when its peer shuts its side down; what the peer sends is left unread.
    """

    @property
    def __class__(self):
        return asyncio.WriteTransport

    cdef int open(self, LoopCore loop, PipeEnd end, object protocol, object context) except -1:
        """Register; raises without having changed anything."""
        loop._check_closed()
        self._loop = loop
        self._end = end
        self.fd = end.file.fileno()
        try:
            # What hangs up a device shows when it is written to, as in asyncio.
            if end.kind != CHARACTER:
                self._armed = True
                end.watch(loop, self, self._interest())
            self._keeps_packets = end.keeps_packets()
            os.set_blocking(self.fd, False)
        except BaseException:
            end.give_back(loop, self)
            raise
        return self.begin(loop, protocol, context, None)

    # ---- registration

    cdef uint32_t _interest(self) noexcept:
        """What to wait for now; 0: nothing.

        A pipe would report OUT each time its reader frees a page, so only while it is full. ERR
        and HUP need no asking, but the set wants something; pipes never report RDHUP.
        """
        cdef uint32_t wanted = 0 if self._end.kind == CHARACTER else EPOLLRDHUP
        if self._blocked:
            wanted |= EPOLLOUT
        if not wanted:
            return 0
        if self._loop.poller.mode == EDGE:
            return wanted | EPOLLET
        return wanted | EPOLLONESHOT if self._loop.poller.mode == ONESHOT else wanted

    cdef int _rearm(self) except -1:
        cdef uint32_t wanted
        if self.fd < 0 or self._lost:
            return 0
        wanted = self._interest()
        if wanted == self.interest and (self._armed or not wanted & EPOLLONESHOT):
            return 0
        self._armed = True
        if self._end.watched:
            return self._loop.poller.modify(self, wanted)
        if not self._end.never_blocks:
            self._end.watch(self._loop, self, wanted)
        return 0

    cdef int on_io(self, uint32_t events) except -1:
        self._armed = False
        if events & END_EVENTS and self._end.kind != CHARACTER:
            self._reader_gone = True
        if self._blocked and events & (EPOLLOUT | END_EVENTS):
            self._writable = True
        if self._reader_gone or self._writable:
            return self.enqueue()
        return self._rearm()

    # ---- one turn

    cdef int run(self) except -1:
        self._queued = False
        if self.fd < 0:
            return 0
        if not self._made:
            self.call_connection_made()
        if self._reader_gone:
            if self._loop.get_debug() and not self._lost:
                logger.info("%r was closed by peer", self)
            return self.force_close(
                os_error(-EPIPE, "write") if self.unsent_bytes() else None)
        try:
            if self._writable:
                self._writable = False
                self._blocked = False
                self._write_out()
        finally:
            self._rearm()
        return 0

    cdef int flush(self) except -1:
        self._to_flush = False
        if self._queue is not None and not self._blocked:
            self._write_out()
            self._rearm()
        return 0

    # ---- writing

    def write(self, data):
        """Write `data`, now or as soon as the kernel has room.

        The first write of a turn goes out at once, later ones together when the turn ends; on a
        pipe no write of up to PIPE_BUF (4096) bytes is torn by that. What is not sent at once is
        kept as it is now: changing a mutable `data` afterwards is safe.

        Args:
            data: bytes, bytearray or memoryview (C-contiguous).

        Raises:
            TypeError: `data` is something else.
        """
        cdef Py_buffer view
        if type(data) is bytes:
            self._write_bytes(<bytes>data, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            return
        check_bytes_like(data)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self._write_bytes(None, <const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef int _write_bytes(self, bytes owner, const char *start, Py_ssize_t n) except -1:
        """Write `n` bytes. Without an owner that keeps them, what is not sent is copied."""
        cdef Py_ssize_t sent
        if n == 0 or self._refuses():
            return 0
        if self._queue is not None or not self._sends_now():
            self._append(owner, start, n)
            return self._send_or_coalesce()
        sent = self._try_write(start, n)
        if sent == n or self._lost:
            return 0
        self._blocked = True
        self._append(owner, start + sent, n - sent)
        self._rearm()
        return self.pause_protocol_if_full()

    cdef bint _sends_now(self) noexcept:
        """True once in a turn, and always while the loop stands still: no turn would end then."""
        if self._keeps_packets or self._loop._thread == 0:
            return True
        if self._sent_in_turn == self._loop.turn():
            return False
        self._sent_in_turn = self._loop.turn()
        return True

    cdef Py_ssize_t _try_write(self, const char *start, Py_ssize_t n) except? -1:
        """How many bytes the kernel took; ends the connection if it fails."""
        cdef Py_ssize_t sent
        if self._end.kind == SOCKET:
            sent = sock.send(self.fd, start, <size_t>n)
        else:
            sent = descriptors.write(self.fd, start, <size_t>n)
        if sent == -EAGAIN:
            self._loop.counters.would_blocks += 1
            return 0
        if sent < 0:
            self.fatal(os_error(sent, "write"), "Fatal write error on pipe transport")
            return 0
        self._loop.counters.bytes_sent += sent
        return sent

    cdef bint _refuses(self) except -1:
        if not (self._lost or self._closing):
            return False
        if self._writes_lost >= LOG_THRESHOLD_FOR_CONNLOST_WRITES:
            logger.warning("pipe closed by peer or os.write(pipe, data) raised exception.")
        self._writes_lost += 1
        return True

    cdef int _append(self, bytes owner, const char *start, Py_ssize_t n) except -1:
        if owner is None:
            owner = PyBytes_FromStringAndSize(start, n)
            start = PyBytes_AS_STRING(owner)
        if self._queue is None:
            self._queue = WriteQueue.__new__(WriteQueue)
        return self._queue.push_part(owner, start, n)

    cdef int _send_or_coalesce(self) except -1:
        """Something was appended: send it when the turn ends, or now if it is much."""
        if not self._blocked:
            if self._queue.size > self._high_bytes:
                self._write_out()
                self._rearm()
            elif not self._to_flush:
                self._to_flush = True
                self._loop.flush_later(self)
        return self.pause_protocol_if_full()

    def writelines(self, list_of_data):
        """Write each item of an iterable, together. As `write` otherwise."""
        cdef:
            list parts = []
            bytes part
        for data in list_of_data:
            check_bytes_like(data)
            if len(data):
                parts.append(immutable(data))
        if not parts or self._refuses():
            return
        for part in parts:
            self._append(part, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
        if not self._blocked and self._sends_now():
            self._write_out()
            self._rearm()
            self.pause_protocol_if_full()
            return
        self._send_or_coalesce()

    cdef Py_ssize_t _send_some(self, Py_ssize_t *offered) except? -1:
        """One system call with the head of the queue; how much it was offered, and took."""
        cdef:
            sock.iovec parts[VECTOR_PARTS]
            Py_ssize_t size = 0
            Py_ssize_t count = 0
            Py_ssize_t found = self._queue.vector(parts, 1 if self._keeps_packets else VECTOR_PARTS)
        while count < found:
            # pipe(7): up to PIPE_BUF bytes are written as a whole. Joining must not undo that for
            # a line of a log that others write as well.
            if (count and self._end.kind == FIFO
                    and size + <Py_ssize_t>parts[count].iov_len > descriptors.PIPE_BUF):
                break
            size += <Py_ssize_t>parts[count].iov_len
            count += 1
        offered[0] = size
        if self._end.kind == SOCKET:
            return sock.send_vector(self.fd, parts, <size_t>count)
        return descriptors.write_vector(self.fd, parts, <int>count)

    cdef int _write_out(self) except -1:
        """Write the queue until it is empty or the kernel has enough."""
        cdef Py_ssize_t sent, offered = 0
        while self._queue is not None:
            sent = self._send_some(&offered)
            if sent == -EAGAIN:
                self._loop.counters.would_blocks += 1
                self._blocked = True
                break
            if sent < 0:
                return self.fatal(os_error(sent, "write"), "Fatal write error on pipe transport")
            self._loop.counters.bytes_sent += sent
            self._queue.advance(sent)
            if self._queue.size == 0:
                self._queue = None
            elif sent < offered:
                self._blocked = True
                break
        return self._after_write()

    cdef int _after_write(self) except -1:
        try:
            self.resume_protocol_if_drained()    # which may write again
        finally:
            if self._queue is None and self._closing and not self._lost:
                self.finish(None)
        return 0

    cdef Py_ssize_t unsent_bytes(self) noexcept:
        return 0 if self._queue is None else self._queue.size

    cdef int drop_unsent(self) except -1:
        self._queue = None
        self._blocked = False
        return 0

    def can_write_eof(self):
        return True

    # ---- the end

    def write_eof(self):
        """As `close`: the end of a pipe is its closing."""
        self.close()

    def close(self):
        """Write what is unsent, then close. connection_lost(None) follows."""
        if self._closing:
            return
        self._closing = True
        if self._queue is None:
            self.finish(None)
        elif not self._blocked:
            self.flush()

    def set_protocol(self, protocol):
        self._protocol = protocol

    # ---- not for a writing end; asyncio's is an asyncio.Transport that lacks them

    def pause_reading(self):
        raise NotImplementedError

    def resume_reading(self):
        raise NotImplementedError

    def is_reading(self):
        raise NotImplementedError

    cdef int release(self) except -1:
        if self.fd >= 0:
            self._loop.counters.transports -= 1
            self._queue = None
            self._end.let_go(self._loop, self)
        return 0

    def __repr__(self):
        info = ["WritePipeTransport"]
        if self.fd < 0:
            info.append("closed")
        else:
            if self._closing:
                info.append("closing")
            info.append(f"fd={self.fd}")
            info.append("open polling" if self._blocked else "open idle")
            info.append(f"bufsize={self.unsent_bytes()}")
        return f"<{' '.join(info)}>"
