"""Accepting connections.

Level-triggered in every mode: an edge would strand the backlog after EMFILE.

Source: CPython 3.13 asyncio.selector_events.BaseSelectorEventLoop._accept_connection; accept(2).
"""

import socket as socket_module
from asyncio.constants import ACCEPT_RETRY_DELAY
from asyncio.trsock import TransportSocket
from functools import partial

cimport cython
from libc.errno cimport EAGAIN, EINVAL, EMFILE, ENFILE, ENOBUFS, ENOMEM
from libc.stdint cimport uint32_t

from eploop.addresses cimport keep, to_python
from eploop.core cimport LoopCore
from eploop.errors cimport os_error
from eploop.handles cimport call_in, copy_context
from eploop.poller cimport Watcher
from eploop.syscalls cimport fd as descriptors, sock
from eploop.syscalls.epoll cimport EPOLLIN
from eploop.transports.stream cimport StreamTransport

cdef extern from "Python.h":
    object copy_of_context "PyContext_Copy"(object context)


@cython.final
cdef class Listener(Watcher):
    """A listening socket."""

    def __init__(self, LoopCore loop, listening, protocol_factory, server, int backlog,
                 accept_wrapped=None):
        self.fd = listening.fileno()
        self._loop = loop
        self._socket = listening
        self._protocol_factory = protocol_factory
        self._context = copy_context()
        self._server = server
        self._accept_wrapped = accept_wrapped
        self._backlog = max(backlog, 1)
        self._is_tcp = listening.family != socket_module.AF_UNIX
        if self._is_tcp:
            # tcp(7): accepted sockets inherit it, which saves a system call each.
            sock.set_nodelay(self.fd)
        loop.poller.add(self, EPOLLIN)

    def stop(self):
        """Accept no more. The socket stays its owner's to close."""
        self._loop.poller.remove(self)
        self.fd = -1

    cdef int on_io(self, uint32_t events) except -1:
        if not self._queued:
            self._queued = True
            self._loop.defer(self)
        return 0

    cdef int run(self) except -1:
        cdef:
            sock.sockaddr_storage address
            sock.socklen_t size
            int left = self._backlog
            int fd
        self._queued = False
        if self._is_tcp and self.fd >= 0:
            # As many as wait: an accept4() that finds nothing costs as much as one that does.
            fd = sock.queued_connections(self.fd)
            if fd > 0:
                left = min(left, fd)
        while left > 0 and self.fd >= 0:
            left -= 1
            size = sizeof(address)
            fd = sock.accept(self.fd, <sock.sockaddr *>&address, &size)
            if fd == -EAGAIN:
                break
            if fd < 0:
                if self._refused(fd):
                    break
                continue
            self._take(fd, &address, size)
        return 0

    cdef int _refused(self, int rc) except -1:
        """accept(2) failed: 1 if there is no point in going on."""
        if rc in (-EMFILE, -ENFILE, -ENOBUFS, -ENOMEM):
            self._loop.call_exception_handler({
                "message": "socket.accept() out of system resource",
                "exception": os_error(rc, "accept4"),
                "socket": TransportSocket(self._socket),
            })
            # Level-triggered, so it would come again at once.
            self._loop.poller.suspend(self)
            self._loop.call_later(ACCEPT_RETRY_DELAY, self._retry)
            return 1
        # EINVAL: the owner shut the socket down. Anything else concerns one connection (accept(2):
        # treat pending network errors like EAGAIN); it is gone, and the next one follows.
        return rc == -EINVAL

    def _retry(self):
        if self.fd >= 0:
            self._loop.poller.modify(self, EPOLLIN)

    cdef int _take(self, int fd, sock.sockaddr_storage *address, sock.socklen_t size) except -1:
        if self._accept_wrapped is None:
            return self._open_transport(fd, address, size)
        connection = socket_module.socket(self._socket.family, self._socket.type,
                                          self._socket.proto, fileno=fd)
        connection.setblocking(False)
        peer = to_python(<sock.sockaddr *>address, size)
        call_in(self._context, partial(self._accept_wrapped, connection, peer))
        return 0

    cdef int _open_transport(self, int fd, sock.sockaddr_storage *address,
                             sock.socklen_t size) except -1:
        cdef:
            StreamTransport transport = None
            object protocol = None
            object context = copy_of_context(self._context)
        try:
            protocol = call_in(context, self._protocol_factory)
            transport = StreamTransport.__new__(StreamTransport)
            transport.fd = fd
            transport._is_unix = not self._is_tcp
            keep(&transport._peer, address, size)
            transport.open(self._loop, protocol, context, self._server)
            transport.start(None)
        except BaseException as exc:
            if transport is not None:
                transport.fd = -1
            descriptors.close(fd)
            if isinstance(exc, (SystemExit, KeyboardInterrupt)):
                raise
            self._report(exc, protocol, transport)
        return 0

    cdef int _report(self, object exc, object protocol, object transport) except -1:
        context = {
            "message": "Error on transport creation for incoming connection",
            "exception": exc,
        }
        if protocol is not None:
            context["protocol"] = protocol
        if transport is not None:
            context["transport"] = transport
        self._loop.call_exception_handler(context)
        return 0

    cdef int report(self, object exc) except -1:
        return self._report(exc, None, None)

    def __repr__(self):
        return f"<Listener {'closed' if self.fd < 0 else f'fd={self.fd}'}>"


def stop_listening(LoopCore loop, listening):
    """Stop the listener of the socket `listening`, if it has one."""
    cdef Watcher watcher = loop.poller.at(listening.fileno())
    if isinstance(watcher, Listener):
        watcher.stop()


def transports_of(LoopCore loop, server):
    """The open stream transports that `server` accepted."""
    cdef Watcher watcher
    found = []
    for watcher in loop.poller.watchers():
        if isinstance(watcher, StreamTransport) and (<StreamTransport>watcher)._server is server:
            found.append(watcher)
    return found
