# Accepting connections.

from eploop.core cimport LoopCore
from eploop.poller cimport Watcher
from eploop.syscalls.sock cimport sockaddr_storage, socklen_t


cdef class Listener(Watcher):
    cdef:
        LoopCore _loop
        object _socket
        object _protocol_factory
        object _context         # each connection starts with a copy
        object _server
        object _accept_wrapped  # called with (socket, address) instead, for TLS; None for plain
        int _backlog            # also the number of connections accepted in one turn
        bint _is_tcp
        bint _queued
    cdef int _take(self, int fd, sockaddr_storage *address, socklen_t size) except -1
    cdef int _open_transport(self, int fd, sockaddr_storage *address, socklen_t size) except -1
    cdef int _refused(self, int rc) except -1
    cdef int _report(self, object exc, object protocol, object transport) except -1
