"""TCP and unix stream sockets.

Readiness is state: an event sets flags and queues the transport, and its turn does one read at
most. epoll(7) says that a short read proves the socket drained. It does so for data, not for an
end of stream that came before the first wait (no second edge), nor behind an urgent mark; hence
`_hung_up` and `_to_the_end`. On a unix socket it proves nothing, as a read stops short where passed
descriptors lie between the data. Edge-triggered, each message would cost a read that would block:
so unix sockets are level-triggered in edge mode, which costs no system call.

Source: CPython 3.13 asyncio.selector_events._SelectorSocketTransport; epoll(7), tcp(7), unix(7).
"""

import asyncio
import socket as socket_module
from asyncio.log import logger
from asyncio.trsock import TransportSocket

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN
from libc.stdint cimport uint32_t

from eploop.addresses cimport keep, raw_to_python, to_python
from eploop.buffers cimport JOIN_BYTES, WriteQueue, check_bytes_like, immutable
from eploop.core cimport LoopCore
from eploop.errors cimport os_error
from eploop.handles cimport copy_context
from eploop.poller cimport EDGE, LEVEL, ONESHOT
from eploop.receivers cimport Receiver, receiver_for
from eploop.syscalls cimport fd as descriptors, sock as syscalls
from eploop.syscalls.epoll cimport (
    EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDHUP,
)
from eploop.transports.base cimport Transport, check_free

cdef enum:
    VECTOR_PARTS = 64       # buffers handed to one sendmsg

cdef uint32_t READ_EVENTS = EPOLLIN | EPOLLRDHUP | EPOLLPRI
cdef uint32_t END_EVENTS = EPOLLRDHUP | EPOLLHUP | EPOLLERR


cdef StreamTransport from_socket(
        LoopCore loop, object sock, object protocol, object waiter, object extra, object server):
    """A transport that takes over the socket object `sock`."""
    cdef StreamTransport transport = StreamTransport.__new__(StreamTransport)
    check_free(loop, sock.fileno())
    transport.fd = sock.fileno()
    transport._socket = sock
    transport._is_unix = sock.family == socket_module.AF_UNIX
    if extra is not None:
        transport._extra = dict(extra)
    if not transport._is_unix:
        # Also for sockets made with protocol 0, where asyncio forgets it. EOPNOTSUPP and the like:
        # a stream that is not TCP (SCTP, MPTCP before it had the option).
        syscalls.set_nodelay(transport.fd)
        if extra is None or "peername" not in extra:
            transport.note_peer()
    try:
        transport.open(loop, protocol, copy_context(), server)
    except BaseException:
        transport.fd = -1    # the caller's again
        raise
    transport.start(waiter)
    return transport


def make_stream_transport(loop, sock, protocol, waiter=None, *, extra=None, server=None):
    """A stream transport over the connected socket `sock`, which it owns from now on.

    Args:
        waiter: A future that gets its result once connection_made() was called.
        extra: Extra info that overrides what the socket says.
        server: The server that accepted the connection.

    Raises:
        OSError: The descriptor cannot be watched.
        RuntimeError: Another transport owns the socket.
    """
    return from_socket(loop, sock, protocol, waiter, extra, server)


@cython.final
cdef class StreamTransport(Transport):
    """A TCP or unix stream connection: asyncio.Transport."""

    _start_tls_compatible = True
    _sendfile_compatible = asyncio.constants._SendfileMode.TRY_NATIVE

    cdef int open(self, LoopCore loop, object protocol, object context, object server) except -1:
        """Register; raises without having changed anything."""
        self._loop = loop
        self._mode = loop.poller.mode
        if self._mode == EDGE and self._is_unix:
            self._mode = LEVEL
        if self._mode == EDGE:
            loop.poller.add(self, READ_EVENTS | EPOLLOUT | EPOLLET)
        elif self._mode == ONESHOT:
            self._armed = True
            loop.poller.add(self, READ_EVENTS | EPOLLONESHOT)
        else:
            loop.poller.add(self, EPOLLIN | EPOLLRDHUP)
        self._receiver = receiver_for(protocol, context, loop.shared)
        return self.begin(loop, protocol, context, server)

    cdef int start(self, object waiter) except -1:
        """connection_made comes first in the ready queue, before any event of the descriptor."""
        self._waiter = waiter
        return self.enqueue()

    # ---- registration

    cdef uint32_t _plain_interest(self) noexcept:
        """What level and oneshot mode wait for."""
        cdef uint32_t wanted = 0
        if self.wants_to_read():
            wanted = EPOLLIN | EPOLLRDHUP
        if self._blocked:
            wanted |= EPOLLOUT
        return wanted

    cdef int _rearm(self) except -1:
        """Ask the kernel for what is wanted now, if it does not know."""
        cdef uint32_t wanted
        if self._mode == EDGE or self.fd < 0 or self._lost:
            return 0
        wanted = self._plain_interest()
        if self._mode == ONESHOT:
            if self._readable:
                wanted &= EPOLLOUT      # a read is owed anyway
            elif wanted & EPOLLIN:
                wanted |= EPOLLPRI
            if wanted and not (self._armed and wanted & ~self.interest == 0):
                self._armed = True
                self._loop.poller.modify(self, wanted | EPOLLONESHOT)
        elif wanted & ~self.interest or (self.interest & EPOLLOUT and not self._blocked):
            # Reading is switched off only when an unwanted event shows up: see on_io.
            self._loop.poller.modify(self, wanted | (self.interest & (EPOLLIN | EPOLLRDHUP)))
        return 0

    cdef int on_io(self, uint32_t events) except -1:
        if events & (READ_EVENTS | END_EVENTS):
            self._readable = True
            if events & END_EVENTS:
                self._hung_up = True
            if events & EPOLLPRI:
                self._to_the_end = True
        if self._blocked and events & (EPOLLOUT | EPOLLHUP | EPOLLERR):
            self._writable = True
        self._armed = False
        if self._writable or (self._readable and self.wants_to_read()):
            return self.enqueue()
        if self._mode == LEVEL:
            return self._disarm_unwanted(events)
        return self._rearm()

    cdef int _disarm_unwanted(self, uint32_t events) except -1:
        """Level mode: nobody will act on these events, so they would come again at once."""
        if events & (EPOLLHUP | EPOLLERR):
            # They cannot be masked.
            return self._loop.poller.suspend(self)
        return self._loop.poller.modify(self, self._plain_interest())

    # ---- one turn

    cdef int run(self) except -1:
        self._queued = False
        if self.fd < 0:
            return 0
        if not self._made:
            return self._begin()
        try:
            if self._writable:
                self._writable = False
                self._blocked = False
                self._write_out()
            if self._readable and self.wants_to_read():
                self._read_once()
        except (SystemExit, KeyboardInterrupt):
            self.enqueue()    # for what was not come to
            raise
        finally:
            self._rearm()
        return 0

    cdef int _begin(self) except -1:
        self.call_connection_made()
        if self._readable and self.wants_to_read():
            # After whoever waits for the connection, who may have a peer to name first.
            return self.enqueue()
        return self._rearm()

    cdef int flush(self) except -1:
        self._to_flush = False
        if self._queue is not None and not self._blocked:
            self._write_out()
            self._rearm()
        return 0

    # ---- reading

    cdef bint wants_to_read(self) noexcept:
        return not (self._paused or self._closing or self._read_closed)

    cdef int _read_once(self) except -1:
        cdef:
            Receiver receiver = self._receiver
            char *start = NULL
            Py_ssize_t room = 0
            Py_ssize_t n = 0
        try:
            receiver.space(&start, &room)
            if not self.wants_to_read():
                return receiver.unused()
            n = syscalls.recv(self.fd, start, <size_t>room)
            if n > 0:
                self._readable = n == room or self._hung_up or self._to_the_end
                self._loop.counters.bytes_received += n
                receiver.filled(n)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            return self.fatal(exc, "Fatal error: " + receiver.failed())
        finally:
            # The protocol may have asked for more or for nothing; the rest waits for a turn.
            if self._readable and n > 0 and self.wants_to_read():
                self.enqueue()
        if n > 0:
            return 0
        receiver.unused()
        self._readable = False
        if n == -EAGAIN:
            self._loop.counters.would_blocks += 1
            return 0
        if n == 0:
            return self._read_eof()
        return self.fatal(os_error(n, "recv"), "Fatal read error on socket transport")

    cdef int _read_eof(self) except -1:
        cdef bint keep_open
        if self._loop.get_debug():
            logger.debug("%r received EOF", self)
        try:
            keep_open = self._receiver.eof()
        except (SystemExit, KeyboardInterrupt):
            self._readable = True    # once more, as in asyncio
            raise
        except BaseException as exc:
            return self.fatal(exc, "Fatal error: protocol.eof_received() call failed.")
        if keep_open:
            self._read_closed = True
        else:
            self.close()
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
        if self._readable and not self._read_closed:
            self.enqueue()
        else:
            self._rearm()

    def is_reading(self):
        return not self._closing and not self._paused

    def set_protocol(self, protocol):
        """Hand the connection to `protocol`; takes effect from the next read."""
        self._protocol = protocol
        if self.fd >= 0:
            self._receiver = receiver_for(protocol, self._context, self._loop.shared)

    # ---- writing

    def write(self, data):
        """Send `data`, now or as soon as the kernel has room.

        The first write of a turn goes out at once, later ones together when the turn ends. What
        is not sent at once is kept as it is now: changing a mutable `data` afterwards is safe.

        Args:
            data: bytes, bytearray or memoryview (C-contiguous).

        Raises:
            TypeError: `data` is something else.
            RuntimeError: After `write_eof`.
        """
        cdef Py_buffer view
        if type(data) is bytes:
            self.write_bytes(<bytes>data, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            return
        check_bytes_like(data)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.write_bytes(None, <const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef int write_bytes(self, bytes owner, const char *start, Py_ssize_t n) except -1:
        """Send `n` bytes. Without an owner that keeps them, what is not sent is copied."""
        cdef Py_ssize_t sent
        if self._eof or self._lost or self._lent or n == 0:
            return 0 if n == 0 and not self._eof else self._refuse_write()
        if self._queue is None and self._sent_in_turn != self._loop.turn():
            self._sent_in_turn = self._loop.turn()
            sent = syscalls.send(self.fd, start, <size_t>n)
            if sent == n:
                self._loop.counters.bytes_sent += n
                return 0
            if sent < 0:
                if sent != -EAGAIN:
                    return self.fatal(os_error(sent, "send"),
                                      "Fatal write error on socket transport")
                self._loop.counters.would_blocks += 1
                sent = 0
            self._loop.counters.bytes_sent += sent
            self._blocked = True
            self._append(owner, start + sent, n - sent)
            self._rearm()
            return self.pause_protocol_if_full()
        self._append(owner, start, n)
        return self._send_or_coalesce()

    cdef int _refuse_write(self) except -1:
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lent:
            raise RuntimeError("unable to write; sendfile is in progress")
        self._note_lost_write()
        return 0

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
            # While no turn is under way none ends, and nothing would be sent.
            if self._queue.size > self._high_bytes or not self._loop.is_turning():
                self._write_out()
                self._rearm()
            elif not self._to_flush:
                self._to_flush = True
                self._loop.flush_later(self)
        return self.pause_protocol_if_full()

    def writelines(self, list_of_data):
        """Send each item of an iterable, together. As `write` otherwise."""
        cdef:
            list parts = []
            bytes part
        for data in list_of_data:
            check_bytes_like(data)
            parts.append(immutable(data))
        if self._eof or self._lost or self._lent:
            self._refuse_write()
            return
        for part in parts:
            self._append(part, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
        if self._queue is None:
            return
        if not self._queue.size:
            self._queue = None
            return
        if not self._blocked and self._sent_in_turn != self._loop.turn():
            self._sent_in_turn = self._loop.turn()
            self._write_out()
            self._rearm()
            self.pause_protocol_if_full()
            return
        self._send_or_coalesce()

    cdef Py_ssize_t _send_some(self, Py_ssize_t *offered) except? -1:
        """One system call with the head of the queue; how much it was offered, and took."""
        cdef:
            syscalls.iovec parts[VECTOR_PARTS]
            Py_ssize_t count, i
        if self._queue.count > 1 and self._queue.size <= JOIN_BYTES:
            offered[0] = self._queue.copy(self._loop.shared.join(), JOIN_BYTES)
            return syscalls.send(self.fd, self._loop.shared.join(), <size_t>offered[0])
        count = self._queue.vector(parts, VECTOR_PARTS)
        offered[0] = 0
        for i in range(count):
            offered[0] += <Py_ssize_t>parts[i].iov_len
        if count == 1:
            return syscalls.send(self.fd, parts[0].iov_base, parts[0].iov_len)
        return syscalls.send_vector(self.fd, parts, <size_t>count)

    cdef int _write_out(self) except -1:
        """Send the queue until it is empty or the kernel has enough."""
        cdef Py_ssize_t sent, offered = 0
        while self._queue is not None:
            sent = self._send_some(&offered)
            if sent == -EAGAIN:
                self._loop.counters.would_blocks += 1
                self._blocked = True
                break
            if sent < 0:
                return self.fatal(os_error(sent, "send"), "Fatal write error on socket transport")
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
            self._end_when_sent()
        return 0

    cdef int _end_when_sent(self) except -1:
        if self._queue is not None or self._lost:
            return 0
        self._report_room()
        if self._closing:
            return self.finish(None)
        if self._eof and not self._shut:
            self._shut = True
            # ENOTCONN: the peer is gone, which reading reports.
            syscalls.shutdown_write(self.fd)
        return 0

    cdef Py_ssize_t unsent_bytes(self) noexcept:
        return 0 if self._queue is None else self._queue.size

    cdef int drop_unsent(self) except -1:
        self._queue = None
        self._blocked = False
        if self._room is not None and not self._room.done():
            self._room.set_exception(ConnectionError("Connection is closed by peer"))
        return 0

    def write_eof(self):
        """Shut the sending half once all is sent."""
        if self._closing or self._eof:
            return
        self._eof = True
        if self._queue is None:
            self._after_write()
        elif not self._blocked:
            self.flush()

    def can_write_eof(self):
        return True

    # ---- lending the descriptor to sendfile

    cdef int lend(self) except -1:
        if self._lent:
            raise RuntimeError("sendfile is in progress already")
        self._lent = True
        return 0

    cdef int take_back(self) except -1:
        self._lent = False
        self._room = None
        return 0

    cdef object until_room(self):
        self._room = self._loop.create_future()
        if self._lost or self.fd < 0:
            self._room.set_exception(ConnectionError("Connection is closed by peer"))
        elif self._queue is None and not self._blocked:
            self._room.set_result(None)
        elif not self._blocked:
            self.flush()
        return self._room

    cdef int would_block(self) except -1:
        self._loop.counters.would_blocks += 1
        self._blocked = True
        return self._rearm()

    cdef int _report_room(self) except -1:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        return 0

    # ---- the end

    def close(self):
        """Send what is unsent, then close. connection_lost(None) follows."""
        if self._closing:
            return
        self._closing = True
        if self._queue is None:
            self.finish(None)
        elif not self._blocked:
            self.flush()

    cdef int release(self) except -1:
        cdef:
            int fd = self.fd
            syscalls.sockaddr_storage address
            syscalls.socklen_t size = sizeof(address)
        if fd < 0:
            return 0
        if self._is_unix:
            for name in ("sockname", "peername"):
                self.get_extra_info(name)    # remembers it; too long to be kept raw
        elif syscalls.getsockname(fd, <syscalls.sockaddr *>&address, &size) == 0:
            keep(&self._local, &address, size)
        self._loop.poller.remove(self)
        self.fd = -1
        self._loop.counters.transports -= 1
        self._receiver = None
        self.drop_unsent()
        if self._socket is not None:
            self._socket.close()
        else:
            descriptors.close(fd)
        return 0

    # ---- asking

    cdef object socket(self):
        """The descriptor's socket object, made at the first call."""
        if self._socket is None and self.fd >= 0:
            self._socket = socket_module.socket(fileno=self.fd)
            self._socket.setblocking(False)
        return self._socket

    def get_extra_info(self, name, default=None):
        """As asyncio; the socket and the addresses stay available after the end."""
        if self._extra is None:
            self._extra = {}
        elif name in self._extra:
            return self._extra[name]
        if name == "socket":
            if self.socket() is None:
                return default
            self._extra[name] = TransportSocket(self._socket)
        elif name == "sockname" or name == "peername":
            self._extra[name] = self._address(name)
        return self._extra.get(name, default)

    cdef int note_peer(self) except -1:
        """Ask now: after a reset the kernel does not know any more."""
        cdef:
            syscalls.sockaddr_storage address
            syscalls.socklen_t size = sizeof(address)
        if syscalls.getpeername(self.fd, <syscalls.sockaddr *>&address, &size) == 0:
            keep(&self._peer, &address, size)
        return 0

    cdef object _address(self, str name):
        cdef:
            syscalls.sockaddr_storage address
            syscalls.socklen_t size = sizeof(address)
            int rc
        if name == "peername" and self._peer.size:
            return raw_to_python(&self._peer)
        if self.fd < 0:
            return raw_to_python(&self._local) if name == "sockname" else None
        if name == "sockname":
            rc = syscalls.getsockname(self.fd, <syscalls.sockaddr *>&address, &size)
        else:
            rc = syscalls.getpeername(self.fd, <syscalls.sockaddr *>&address, &size)
        return to_python(<syscalls.sockaddr *>&address, size) if rc == 0 else None

    def __repr__(self):
        info = ["StreamTransport"]
        if self.fd < 0:
            info.append("closed")
        else:
            if self._closing:
                info.append("closing")
            info.append(f"fd={self.fd}")
            info.append("read=polling" if self.wants_to_read() else "read=idle")
            state = "polling" if self._blocked else "idle"
            info.append(f"write=<{state}, bufsize={self.unsent_bytes()}>")
        return f"<{' '.join(info)}>"
