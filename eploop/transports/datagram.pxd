# UDP and unix datagram sockets, and whatever else sends and receives datagrams.

from libc.stdint cimport uint32_t

from eploop.core cimport LoopCore
from eploop.syscalls.sock cimport sockaddr, sockaddr_storage, socklen_t
from eploop.transports.base cimport Transport


cdef class DatagramTransport(Transport):
    cdef:
        object _socket              # owns the descriptor
        int _family
        unsigned char _is_native    # addresses of the family need no help from the socket module
        # The peer.
        object _address             # the only one that sendto() takes; None: any
        unsigned char _connected    # the kernel has a peer for the socket
        unsigned char _is_named     # ... whose address overrides the one that sendto() is given
        # The last sender, as Python and the kernel show it; None if there is none.
        object _sender
        sockaddr_storage _sender_raw
        socklen_t _sender_size
        # The last address converted for sending; None if there is none.
        object _target
        sockaddr_storage _target_raw
        socklen_t _target_size
        # Reading.
        char *_buffer               # of its own, for large unix datagrams; NULL: the loop's
        unsigned char _readable     # there may be something to read
        unsigned char _failed       # the last read gave an error
        unsigned char _paused
        unsigned char _hung_up      # RDHUP or HUP was seen
        unsigned char _ended        # shut down: nothing will come
        # Writing.
        object _unsent              # a deque of (bytes, address); None if nothing is unsent
        Py_ssize_t _unsent_bytes
        unsigned char _blocked      # waits for OUT
        unsigned char _writable     # ... which came, or a retry is due
        object _retry               # a timer, where OUT tells nothing; None if none runs
        double _retry_seconds
        # Registration.
        unsigned char _armed        # oneshot mode: an event may come
        unsigned char _edge         # registered edge-triggered
        unsigned char _troubled     # HUP, RDHUP or ERR came since the last turn
        unsigned char _moved        # something was sent, received or failed in this turn
    cdef int open(self, LoopCore loop, object protocol, object context, object waiter) except -1
    cdef bint wants_to_read(self) noexcept
    cdef int _rearm(self) except -1
    cdef int _end_turn(self) except -1
    cdef int _read_some(self) except -1
    cdef int _read_one(self) except -1
    cdef int _read_by_socket(self) except -1
    cdef object _address_of(self, const sockaddr_storage *raw, socklen_t size)
    cdef int _deliver(self, bytes data, object address) except -1
    cdef int _read_failed(self, object exc) except -1
    cdef int _call_error_received(self, object exc) except -1
    cdef Py_ssize_t _send(self, object data, object address) except? -1
    cdef Py_ssize_t _send_raw(self, const char *start, Py_ssize_t n, object data,
                              object address) except? -1
    cdef const sockaddr *_raw_target(self, object address, socklen_t *size) except? NULL
    cdef Py_ssize_t _send_by_socket(self, object data, object address) except? -1
    cdef int _append(self, bytes data, object address) except -1
    cdef int _await_room(self, bint out_tells_nothing) except -1
    cdef int _write_out(self) except -1
    cdef int _forget_first(self) except -1
    cdef int _refused(self, object error) except -1
    cdef int _after_write(self) except -1
