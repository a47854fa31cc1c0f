# The life of a TLS connection: handshake, reading, writing, and the end.

from eploop.buffers cimport WriteQueue
from eploop.core cimport LoopCore
from eploop.handles cimport Runnable
from eploop.receivers cimport Receiver
from eploop.tls.engine cimport Engine, SharedTLS
from eploop.transports.stream cimport StreamTransport


cdef enum State:
    FRESH           # there is no connection yet
    HANDSHAKE
    WRAPPED
    SHUTDOWN        # we said that we send no more; waiting for the peer to say so
    OVER


cdef class TLSConnection(Runnable):
    cdef:
        readonly LoopCore _loop
        SharedTLS _shared
        Engine _engine              # None once over
        State _state
        Receiver _lower             # the protocol of the connection below; None once over
        # The program's side.
        object _protocol
        object _waiter              # a future that waits for the handshake, or None
        Receiver _above             # where plaintext goes
        readonly object _context
        dict _extra                 # "ssl_object" is in it once hands were shaken
        # The connection below.
        object _below
        StreamTransport _stream     # the same, if it is one of ours
        # What was said and done.
        readonly bint _closing
        bint _queued                # stands in the ready queue
        bint _paused                # no data_received()
        bint _made                  # connection_made was called
        bint _told_end              # eof_received was called
        bint _ended                 # the connection below came to its end
        int _lost_writes
        # Writing.
        WriteQueue _unwritten       # plaintext that OpenSSL cannot take yet; None if there is none
        int _full                   # how many of the two queues are over their mark
        bint _backlogged            # ours is one of them
        # Time limits.
        object _timer
        object _handshake_s
        object _shutdown_s
        double _began
        dict __dict__               # so that programs may replace methods, as on asyncio's
        object __weakref__
    cdef int begin(self, object below) except -1
    cdef int received(self, const char *start, Py_ssize_t n) except -1
    cdef bint ended(self) except -1                 # true: the connection below stays open
    cdef int lost(self, object exc) except -1
    cdef int full(self) except -1
    cdef int drained(self) except -1
    cdef int _shake_hands(self) except -1
    cdef int _shaken(self) except -1
    cdef int _tell_made(self) except -1
    cdef int _handshake_failed(self, object exc) except -1
    cdef int _wake_waiter(self, object exc) except -1
    cdef int _read(self) except -1
    cdef int _read_batch(self) except -1
    cdef int _call_eof_received(self) except -1
    cdef int _begin_shutdown(self) except -1
    cdef int _shut_down(self) except -1
    cdef int _discard(self) except -1
    cdef int _shut(self) except -1
    cdef int write_bytes(self, const char *start, Py_ssize_t n) except -1
    cdef int _write_later(self, const char *start, Py_ssize_t n) except -1
    cdef bint _write_backlog(self) except -1        # true: nothing is left of it
    cdef int _send(self) except -1                  # what the engine has put out
    cdef Py_ssize_t unsent_bytes(self) except -1
    cdef int _enqueue(self) except -1
    cdef int _fatal(self, object exc, str message) except -1
    cdef int _cancel_timer(self) except -1
    cdef int _report(self, object exc, str message) except -1
    cdef Py_ssize_t _high_bytes(self) except -1
    cdef int _end_below(self, object exc) except -1
    cdef object _inside(self, object function, tuple args)
    cdef int _call_flow(self, str method) except -1
