# LoopCore: the hot half of the event loop.

from libc.stdint cimport int64_t, uint64_t

from eploop.buffers cimport SharedBuffers
from eploop.handles cimport Handle, Runnable
from eploop.poller cimport Poller, Watcher
from eploop.readers cimport Descriptor
from eploop.ready cimport ReadyQueue
from eploop.timers cimport TimerHandle, TimerHeap

cdef enum:
    TURN_TIME_BUCKETS = 40


cdef struct Counters:
    uint64_t turns
    uint64_t callbacks
    uint64_t timers_fired
    uint64_t would_blocks
    uint64_t bytes_received
    uint64_t bytes_sent
    uint64_t transports                         # open now
    uint64_t turn_time[TURN_TIME_BUCKETS]       # log2 of ns; blocked time not counted


cdef class LoopCore:
    cdef:
        Poller poller
        ReadyQueue ready
        TimerHeap timers
        SharedBuffers shared
        list _unflushed             # watchers with coalesced writes
        Counters counters
        # Life.
        bint _is_closed
        bint _stopping
        bint _debugging
        unsigned long _thread       # that runs the loop; 0 if none does
        object _current
        object _run_hooks           # entered and left around run_forever; None if none
        # When to poll.
        int64_t _polled_ns
        int64_t _let_in_ns          # when other threads could run last
        int64_t _turn_began_ns
        Py_ssize_t _callbacks_since_poll
        # Options.
        bint _has_own_clock         # a subclass overrides time()
        int64_t _grid_ns
        int64_t _spin_ns
    cdef int defer(self, Runnable job) except -1           # runs in the next turn
    cdef int flush_later(self, Watcher watcher) except -1  # flush() when this turn's callbacks end
    cdef double _now(self) except? -1
    cdef uint64_t turn(self) noexcept                      # number of the current turn
    cdef bint is_turning(self) noexcept                    # false while nobody runs the loop
    cdef Handle _soon(self, object callback, tuple args, object context)
    cdef Handle schedule(self, object callback, tuple args, object context)
    cdef TimerHandle _call_at(self, double deadline, object callback, tuple args, object context,
                              str method)
    cdef int _turn(self) except -1
    cdef int _block(self, int64_t now_ns) except -1
    cdef int64_t _until_ns(self, double deadline, int64_t now_ns) noexcept
    cdef int _expire(self, double now) except -1
    cdef int _run_ready(self) except -1
    cdef int _run_ready_debug(self, Py_ssize_t left) except -1
    cdef int _note_slow(self, object job, double seconds) except -1
    cdef int _flush(self) except -1
    cdef void _note_turn_time(self, int64_t now_ns) noexcept
    cdef Descriptor _descriptor(self, object fd)
    cdef Descriptor _watched(self, object fd)
    cdef Handle _watching(self, object callback, tuple args)
