# TCP and unix stream sockets.

from libc.stdint cimport uint32_t, uint64_t

from eploop.addresses cimport RawAddress
from eploop.buffers cimport WriteQueue
from eploop.core cimport LoopCore
from eploop.receivers cimport Receiver
from eploop.transports.base cimport Transport


cdef class StreamTransport(Transport):
    cdef:
        # The descriptor's owner, a socket object; None until someone asks: then we are.
        object _socket
        RawAddress _peer
        RawAddress _local           # kept when the descriptor is closed
        # Reading.
        Receiver _receiver
        unsigned char _readable     # there may be something to read
        unsigned char _hung_up      # RDHUP, HUP or ERR was seen: only recv() == 0 ends reading
        unsigned char _to_the_end   # short reads prove nothing here: read until would-block
        readonly unsigned char _paused      # programs read it, as `_closing`
        unsigned char _read_closed  # EOF was delivered, the sending half stays open
        # Writing.
        WriteQueue _queue           # None if nothing is unsent
        unsigned char _lent         # sendfile writes to the descriptor; write() must not
        object _room                # a future that waits until the kernel has room, or None
        uint64_t _sent_in_turn      # the turn of the last immediate send
        unsigned char _blocked      # the kernel took less than it was given
        unsigned char _writable     # ... and reports room now
        unsigned char _to_flush     # stands in the loop's list of coalesced writers
        unsigned char _eof          # write_eof was called
        unsigned char _shut         # ... and took effect
        # Registration.
        unsigned char _is_unix
        int _mode                   # how it is registered: see the first lines of stream.pyx
        unsigned char _armed        # oneshot mode: an event may come
    cdef int open(self, LoopCore loop, object protocol, object context, object server) except -1
    cdef int start(self, object waiter) except -1
    cdef int _begin(self) except -1
    cdef bint wants_to_read(self) noexcept
    cdef int write_bytes(self, bytes owner, const char *start, Py_ssize_t n) except -1
    cdef uint32_t _plain_interest(self) noexcept
    cdef int _rearm(self) except -1
    cdef int _disarm_unwanted(self, uint32_t events) except -1
    cdef int _read_once(self) except -1
    cdef int _read_eof(self) except -1
    cdef int _refuse_write(self) except -1
    cdef int _append(self, bytes owner, const char *start, Py_ssize_t n) except -1
    cdef int _send_or_coalesce(self) except -1
    cdef Py_ssize_t _send_some(self, Py_ssize_t *offered) except? -1
    cdef int _write_out(self) except -1
    cdef int _after_write(self) except -1
    cdef int _end_when_sent(self) except -1
    cdef int lend(self) except -1                           # to sendfile
    cdef int take_back(self) except -1
    cdef object until_room(self)                            # a future: queue empty, kernel ready
    cdef int would_block(self) except -1                    # the borrower's write was refused
    cdef int _report_room(self) except -1
    cdef int note_peer(self) except -1
    cdef object _address(self, str name)
    cdef object socket(self)


cdef StreamTransport from_socket(
    LoopCore loop, object sock, object protocol, object waiter, object extra, object server)
