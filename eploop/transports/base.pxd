# What all transports share: a life from connection_made to connection_lost, and flow control.

from eploop.core cimport LoopCore
from eploop.poller cimport Watcher


cdef class Transport(Watcher):
    cdef:
        readonly LoopCore _loop
        object _protocol
        readonly object _context    # one for the whole connection; its protocol runs there
        object _server              # that accepted it, or None
        dict _extra                 # extra info that was given or asked for; None until then
        object _waiter              # a future that waits for connection_made, or None
        # Flow control.
        Py_ssize_t _high_bytes
        Py_ssize_t _low_bytes
        # Life.
        int _lost                   # > 0 once connection_lost is due; then counts lost writes
        unsigned char _queued       # stands in the ready queue
        readonly unsigned char _closing     # programs read it, on asyncio's and uvloop's too
        unsigned char _made         # connection_made was called
        unsigned char _is_paused     # the protocol was told to pause writing
        dict __dict__               # so that programs may replace methods, as on asyncio's
        object __weakref__
    cdef int begin(self, LoopCore loop, object protocol, object context, object server) except -1
    cdef int enqueue(self) except -1                        # run() in the next turn, once
    cdef Py_ssize_t unsent_bytes(self) noexcept             # accepted by write, not by the kernel
    cdef int drop_unsent(self) except -1
    cdef int release(self) except -1                        # close the descriptor
    cdef int call_connection_made(self) except -1
    cdef int pause_protocol_if_full(self) except -1
    cdef int resume_protocol_if_drained(self) except -1
    cdef int fatal(self, object exc, str message) except -1
    cdef int force_close(self, object exc) except -1
    cdef int finish(self, object exc) except -1             # connection_lost, then release
    cdef int _call_flow(self, str method) except -1


cdef int check_free(LoopCore loop, int fd) except -1        # raises if `fd` has an owner here
