# Pipes, FIFOs, terminals and other character devices; also sockets used in one direction.

from libc.stdint cimport uint32_t, uint64_t

from eploop.buffers cimport WriteQueue
from eploop.core cimport LoopCore
from eploop.receivers cimport Receiver
from eploop.transports.base cimport Transport
from eploop.transports.pipe_end cimport PipeEnd


cdef class ReadPipeTransport(Transport):
    cdef:
        PipeEnd _end
        Receiver _receiver
        unsigned char _readable     # there may be something to read
        unsigned char _hung_up      # HUP, RDHUP or ERR was seen: only the end of file ends reading
        unsigned char _to_the_end   # short reads prove nothing here: read until would-block
        unsigned char _paused
        unsigned char _armed        # oneshot mode: an event may come
    cdef int open(self, LoopCore loop, PipeEnd end, object protocol, object context) except -1
    cdef bint wants_to_read(self) noexcept
    cdef int _rearm(self) except -1
    cdef int _read_once(self) except -1
    cdef bint _holds_more(self, Py_ssize_t n, Py_ssize_t room) noexcept
    cdef int _failed(self, int rc) except -1
    cdef int _read_eof(self) except -1
    cdef int _report_call(self, str method, object exc) except -1


cdef class WritePipeTransport(Transport):
    cdef:
        PipeEnd _end
        WriteQueue _queue           # None if nothing is unsent
        uint64_t _sent_in_turn      # the turn of the last immediate write
        int _writes_lost
        unsigned char _blocked      # the kernel took less than it was given
        unsigned char _writable     # ... and reports room now
        unsigned char _reader_gone
        unsigned char _to_flush     # stands in the loop's list of coalesced writers
        unsigned char _keeps_packets    # each write is a packet: never joined
        unsigned char _armed        # oneshot mode: an event may come
    cdef int open(self, LoopCore loop, PipeEnd end, object protocol, object context) except -1
    cdef uint32_t _interest(self) noexcept
    cdef int _rearm(self) except -1
    cdef int _write_bytes(self, bytes owner, const char *start, Py_ssize_t n) except -1
    cdef bint _sends_now(self) noexcept
    cdef Py_ssize_t _try_write(self, const char *start, Py_ssize_t n) except? -1
    cdef int _append(self, bytes owner, const char *start, Py_ssize_t n) except -1
    cdef int _send_or_coalesce(self) except -1
    cdef bint _refuses(self) except -1
    cdef Py_ssize_t _send_some(self, Py_ssize_t *offered) except? -1
    cdef int _write_out(self) except -1
    cdef int _after_write(self) except -1
