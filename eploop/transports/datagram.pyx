"""UDP and unix datagram sockets, and whatever else sends and receives datagrams.

An event sets flags and queues the transport; its turn reads until would-block, or until the
budget of one turn is used up and the rest waits for the next turn. A short read proves nothing
here. OUT is asked for only after a would-block: it would come once for each datagram sent.

What OUT and ERR do not tell, and what is done about it:

* ENOBUFS, and a unix peer with a full queue to which the socket is not connected, leave the
  socket writable. A timer tries again.
* A shut down socket, or messages in the error queue (ip(7), IP_RECVERR), are reported for as long
  as they last. An event of that sort that moved nothing makes the descriptor edge-triggered.

Source: CPython 3.13 asyncio.selector_events._SelectorDatagramTransport; epoll(7), udp(7), unix(7).
"""

import asyncio
from asyncio.trsock import TransportSocket
from collections import deque

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport EAGAIN, ENOBUFS
from libc.stdint cimport uint32_t
from libc.string cimport memcmp, memcpy

from eploop.addresses cimport from_python, to_python
from eploop.buffers cimport READ_BYTES, check_bytes_like, immutable
from eploop.core cimport LoopCore
from eploop.errors cimport os_error, raise_errno
from eploop.handles cimport (
    PyErr_Clear, copy_context, enter_context, exit_context, try_enter_context,
)
from eploop.poller cimport EDGE, ONESHOT
from eploop.syscalls cimport sock
from eploop.syscalls.epoll cimport (
    EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP,
)
from eploop.syscalls.sock cimport AF_INET, AF_INET6, AF_UNIX, sockaddr, sockaddr_storage, socklen_t
from eploop.transports.base cimport Transport, check_free

cdef enum:
    READ_BUDGET = 32            # datagrams in one turn
    # As asyncio's. A unix datagram may be longer than any UDP one; what is beyond is cut off.
    LONGEST_BYTES = 262144
    # A queued datagram counts for this much more than its bytes (asyncio from 3.13 on), so that
    # a flood of empty ones is noticed.
    HEADER_BYTES = 8

cdef double FIRST_RETRY_SECONDS = 0.001
cdef double LAST_RETRY_SECONDS = 0.016

cdef uint32_t READ_EVENTS = EPOLLIN | EPOLLRDHUP
cdef uint32_t TROUBLE_EVENTS = EPOLLRDHUP | EPOLLHUP | EPOLLERR


class Kind(asyncio.transports._FlowControlMixin, asyncio.DatagramTransport):
    """What isinstance() says of the transport: in asyncio it is a Transport, too."""


def make_datagram_transport(loop, endpoint, protocol, address=None, waiter=None, extra=None):
    """A datagram transport over the non-blocking socket `endpoint`, which it owns from now on.

    Args:
        address: The only address that sendto() takes, and the one it sends to without any.
        waiter: A future that gets its result once connection_made() was called.
        extra: Extra info that overrides what the socket says.

    Raises:
        OSError: The descriptor cannot be watched.
        RuntimeError: Another transport owns the socket.
    """
    cdef DatagramTransport transport = DatagramTransport.__new__(DatagramTransport)
    check_free(loop, endpoint.fileno())
    transport.fd = endpoint.fileno()
    transport._socket = endpoint
    transport._family = endpoint.family
    transport._is_native = endpoint.family in (AF_INET, AF_INET6, AF_UNIX)
    transport._address = address
    info = {"socket": TransportSocket(endpoint), "sockname": None, "peername": None}
    try:
        info["sockname"] = endpoint.getsockname()
        info["peername"] = endpoint.getpeername()
        transport._connected = True
    except OSError:
        pass
    transport._extra = info | (extra or {})
    transport._is_named = bool(transport._extra["peername"])
    try:
        transport.open(loop, protocol, copy_context(), waiter)
    except BaseException:
        transport.fd = -1    # the caller's again
        raise
    return transport


@cython.final
cdef class DatagramTransport(Transport):
    """A datagram endpoint: asyncio.DatagramTransport."""

    @property
    def __class__(self):
        return Kind

    def __dealloc__(self):
        PyMem_Free(self._buffer)

    cdef int open(self, LoopCore loop, object protocol, object context, object waiter) except -1:
        """Register; raises without having changed anything."""
        self._loop = loop
        self._retry_seconds = FIRST_RETRY_SECONDS
        if self._family == AF_UNIX:
            # Pages that no datagram reaches are never touched.
            self._buffer = <char *>PyMem_Malloc(LONGEST_BYTES)
            if self._buffer is NULL:
                raise MemoryError
        self._edge = loop.poller.mode == EDGE
        if self._edge:
            loop.poller.add(self, READ_EVENTS | EPOLLET)
        elif loop.poller.mode == ONESHOT:
            self._armed = True
            loop.poller.add(self, READ_EVENTS | EPOLLONESHOT)
        else:
            loop.poller.add(self, READ_EVENTS)
        self.begin(loop, protocol, context, None)
        # connection_made comes first in the ready queue, before any event of the descriptor.
        self._waiter = waiter
        return self.enqueue()

    # ---- registration

    cdef int _rearm(self) except -1:
        """Ask the kernel for what is wanted now, if it does not know."""
        cdef:
            uint32_t wanted = EPOLLOUT if self._blocked else 0
            bint once = self._loop.poller.mode == ONESHOT and not self._edge
        if self.fd < 0 or self._lost:
            return 0
        if self._edge:
            wanted |= READ_EVENTS | EPOLLET
        elif self.wants_to_read() and not (once and self._readable):
            wanted |= READ_EVENTS
        if once:
            if wanted and not (self._armed and wanted & ~self.interest == 0):
                self._armed = True
                self._loop.poller.modify(self, wanted | EPOLLONESHOT)
        elif wanted != self.interest:
            self._loop.poller.modify(self, wanted)
        return 0

    cdef int on_io(self, uint32_t events) except -1:
        self._armed = False
        if events & ~EPOLLOUT:
            self._readable = True
        if events & TROUBLE_EVENTS:
            self._troubled = True
            if events & (EPOLLRDHUP | EPOLLHUP):
                self._hung_up = True
        if self._blocked and events & (EPOLLOUT | EPOLLHUP | EPOLLERR):
            self._writable = True
        return self.enqueue()

    # ---- one turn

    cdef int run(self) except -1:
        self._queued = False
        if self.fd < 0:
            return 0
        if not self._made:
            self.call_connection_made()
            return self._end_turn()     # datagrams come after whoever waits for the endpoint
        self._moved = False
        try:
            if self._writable:
                self._writable = False
                self._blocked = False
                self._write_out()
            self._read_some()
        finally:
            self._end_turn()
        return 0

    cdef int _end_turn(self) except -1:
        if self._lost or self.fd < 0:
            return 0
        if self._unsent is not None and not self._blocked and self._retry is None:
            self._writable = True    # an exception cut the sending short
        if self._writable or (self._readable and self.wants_to_read()):
            self.enqueue()
        if self._troubled and not self._moved:
            self._edge = True
        self._troubled = False
        return self._rearm()

    # ---- reading

    cdef bint wants_to_read(self) noexcept:
        return not (self._closing or self._paused or self._ended)

    cdef int _read_some(self) except -1:
        cdef int left = READ_BUDGET
        while left > 0 and self._readable and self.wants_to_read():
            left -= 1
            try:
                if self._is_native:
                    self._read_one()
                else:
                    self._read_by_socket()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as exc:
                self.report(exc)    # the protocol's; the endpoint lives on
        return 0

    cdef int _read_one(self) except -1:
        cdef:
            char *start = self._buffer
            Py_ssize_t room = LONGEST_BYTES
            Py_ssize_t n
            sockaddr_storage raw
            socklen_t size = sizeof(raw)
        if start is NULL:
            start = self._loop.shared.read()
            room = READ_BYTES
        n = sock.recvfrom(self.fd, start, <size_t>room, <sockaddr *>&raw, &size)
        if n == -EAGAIN:
            self._loop.counters.would_blocks += 1
            self._readable = False
            self._failed = False
            return 0
        if n < 0:
            return self._read_failed(os_error(n, "recvfrom"))
        if n == 0 and size == 0 and self._hung_up:
            # unix(7): the end, which a read gives again and again. Once is enough.
            self._ended = True
        return self._deliver(PyBytes_FromStringAndSize(start, n), self._address_of(&raw, size))

    cdef int _read_by_socket(self) except -1:
        """The same for a family whose addresses only the socket module knows."""
        try:
            data, address = self._socket.recvfrom(LONGEST_BYTES)
        except BlockingIOError:
            self._loop.counters.would_blocks += 1
            self._readable = False
            self._failed = False
            return 0
        except OSError as exc:
            return self._read_failed(exc)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            return self.fatal(exc, "Fatal read error on datagram transport")
        return self._deliver(data, address)

    cdef object _address_of(self, const sockaddr_storage *raw, socklen_t size):
        """The sender; the same object as long as it stays the same."""
        if size == 0:
            return None
        if size != self._sender_size or memcmp(raw, &self._sender_raw, size) != 0:
            self._sender = to_python(<const sockaddr *>raw, size)
            memcpy(&self._sender_raw, raw, size)
            self._sender_size = size
        return self._sender

    cdef int _deliver(self, bytes data, object address) except -1:
        self._moved = True
        self._failed = False
        self._loop.counters.bytes_received += PyBytes_GET_SIZE(data)
        enter_context(self._context)
        try:
            self._protocol.datagram_received(data, address)
        finally:
            exit_context(self._context)
        return 0

    cdef int _read_failed(self, object exc) except -1:
        # The kernel keeps one error, and each comes with an event. What fails twice in a row is
        # no news, and reading it again and again would help nobody.
        self._readable = not self._failed
        self._failed = True
        self._moved = True
        return self._call_error_received(exc)

    cdef int _call_error_received(self, object exc) except -1:
        """In the transport's context, where sendto() may have been called from already."""
        cdef bint entered = try_enter_context(self._context) == 0
        if not entered:
            PyErr_Clear()
        try:
            self._protocol.error_received(exc)
        finally:
            if entered:
                exit_context(self._context)
        return 0

    def pause_reading(self):
        """No datagram_received() until `resume_reading`; what the kernel cannot keep is lost."""
        if not self._closing:
            self._paused = True

    def resume_reading(self):
        """Undo `pause_reading`; what waits is delivered in a later turn, never from here."""
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
        """Hand the endpoint to `protocol`; takes effect from the next datagram."""
        self._protocol = protocol

    # ---- writing

    def sendto(self, data, addr=None):
        """Send one datagram, now or as soon as the kernel has room. It may be empty.

        Args:
            data: bytes, bytearray or memoryview; what is not sent at once is copied.
            addr: The destination. A host name is looked up by the socket module, which blocks.

        Raises:
            TypeError: `data` is something else.
            ValueError: The endpoint was made with another remote address.
        """
        cdef Py_ssize_t sent
        check_bytes_like(data)
        if self._address:
            if addr is not None and addr != self._address:
                raise ValueError(f"Invalid address: must be None or {self._address}")
            addr = self._address
        if self._lost or self.fd < 0:
            self._note_lost_write()
            return
        if type(data) is memoryview and not data.c_contiguous:
            data = bytes(data)
        if self._unsent is None:
            try:
                sent = self._send(data, addr)
            except OSError as exc:
                self._call_error_received(exc)
                return
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as exc:
                self.fatal(exc, "Fatal write error on datagram transport")
                return
            if sent >= 0:
                return
            self._await_room(sent == -ENOBUFS)
            self._rearm()
        self._append(immutable(data), addr)
        self.pause_protocol_if_full()

    cdef Py_ssize_t _send(self, object data, object address) except? -1:
        """Bytes that the kernel took, or -EAGAIN or -ENOBUFS; raises if it refused them."""
        cdef:
            Py_buffer view
            Py_ssize_t sent
        if type(data) is bytes:
            sent = self._send_raw(
                PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), data, address)
        else:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                sent = self._send_raw(<const char *>view.buf, view.len, data, address)
            finally:
                PyBuffer_Release(&view)
        if sent >= 0:
            self._loop.counters.bytes_sent += sent
        elif sent != -EAGAIN and sent != -ENOBUFS:
            raise_errno(sent, "sendto")
        return sent

    cdef Py_ssize_t _send_raw(self, const char *start, Py_ssize_t n, object data,
                              object address) except? -1:
        cdef:
            const sockaddr *target
            socklen_t size = 0
        if self._connected and (self._is_named or address is None):
            return sock.send(self.fd, start, <size_t>n)
        target = self._raw_target(address, &size)
        if target is NULL:
            return self._send_by_socket(data, address)
        return sock.sendto(self.fd, start, <size_t>n, target, size)

    cdef const sockaddr *_raw_target(self, object address, socklen_t *size) except? NULL:
        """`address` as the kernel wants it, or NULL if that is the socket module's business.

        The objects of both caches are immutable, so the same object is the same address.
        """
        if address is None:
            return NULL
        if address is self._sender:
            size[0] = self._sender_size
            return <const sockaddr *>&self._sender_raw
        if address is not self._target:
            self._target = None
            self._target_size = from_python(self._family, address, &self._target_raw)
            if self._target_size == 0:
                return NULL
            self._target = address
        size[0] = self._target_size
        return <const sockaddr *>&self._target_raw

    cdef Py_ssize_t _send_by_socket(self, object data, object address) except? -1:
        try:
            return self._socket.sendto(data, address)
        except BlockingIOError:
            return -EAGAIN
        except OSError as exc:
            if exc.errno == ENOBUFS:
                return -ENOBUFS
            raise

    cdef int _append(self, bytes data, object address) except -1:
        if self._unsent is None:
            self._unsent = deque()
        self._unsent.append((data, address))
        self._unsent_bytes += PyBytes_GET_SIZE(data) + HEADER_BYTES
        return 0

    cdef int _await_room(self, bint out_tells_nothing) except -1:
        self._loop.counters.would_blocks += 1
        if not out_tells_nothing:
            self._blocked = True
        elif self._retry is None:
            self._retry = self._loop.call_later(self._retry_seconds, self._send_again)
            self._retry_seconds = min(2 * self._retry_seconds, LAST_RETRY_SECONDS)
        return 0

    def _send_again(self):
        self._retry = None
        self._writable = True
        self.enqueue()

    cdef int _write_out(self) except -1:
        """Send the queue until it is empty or the kernel has enough."""
        cdef:
            Py_ssize_t sent
            bint first = True
        while self._unsent is not None:
            data, address = self._unsent[0]
            error = None
            sent = 0
            try:
                sent = self._send(data, address)
            except OSError as exc:
                error = exc
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as exc:
                return self.fatal(exc, "Fatal write error on datagram transport")
            if sent < 0:
                # Refused right after OUT: the peer is full, not the socket.
                self._await_room(first or sent == -ENOBUFS)
                break
            first = False
            self._forget_first()
            if error is not None:
                self._refused(error)
        return self._after_write()

    cdef int _forget_first(self) except -1:
        data, _ = self._unsent.popleft()
        self._unsent_bytes -= PyBytes_GET_SIZE(data) + HEADER_BYTES
        self._moved = True
        self._retry_seconds = FIRST_RETRY_SECONDS
        if not self._unsent:
            self._unsent = None
        return 0

    cdef int _refused(self, object error) except -1:
        try:
            return self._call_error_received(error)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            return self.report(exc)

    cdef int _after_write(self) except -1:
        try:
            self.resume_protocol_if_drained()    # which may send again
        finally:
            if self._unsent is None:
                self._blocked = False
                if self._closing and not self._lost:
                    self.finish(None)
        return 0

    cdef Py_ssize_t unsent_bytes(self) noexcept:
        return self._unsent_bytes

    cdef int drop_unsent(self) except -1:
        self._unsent = None
        self._unsent_bytes = 0
        self._blocked = False
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        return 0

    # ---- the end

    def close(self):
        """Send what is unsent, then close. connection_lost(None) follows."""
        if self._closing:
            return
        self._closing = True
        if self._unsent is None:
            self.finish(None)

    cdef int release(self) except -1:
        if self.fd < 0:
            return 0
        self.drop_unsent()
        self._loop.poller.remove(self)
        self.fd = -1
        self._loop.counters.transports -= 1
        self._sender = self._target = None
        self._socket.close()
        return 0

    def __repr__(self):
        info = ["DatagramTransport"]
        if self.fd < 0:
            info.append("closed")
        else:
            if self._closing:
                info.append("closing")
            info.append(f"fd={self.fd}")
            info.append("read=polling" if self.wants_to_read() else "read=idle")
            state = "idle" if self._unsent is None else "polling"
            info.append(f"write=<{state}, bufsize={self._unsent_bytes}>")
        return f"<{' '.join(info)}>"
