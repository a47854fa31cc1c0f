# Timers: TimerHandle and the heap that orders them.

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from eploop.handles cimport Handle


cdef class TimerHandle(Handle):
    """A callback with a deadline: asyncio.TimerHandle."""
    cdef:
        double deadline         # in seconds of loop.time()
        TimerHeap _heap         # None when in no heap
        Py_ssize_t _index       # where in the heap


cdef struct TimerKey:
    double when
    uint64_t sequence           # equal deadlines: first come, first served


cdef class TimerHeap:
    cdef:
        # Parallel: the keys lie together for the comparisons, the list is what the garbage
        # collector sees. Four children per node: i -> 4 i + 1 ... 4 i + 4.
        TimerKey *_keys
        list _timers
        Py_ssize_t _capacity
        Py_ssize_t size
        uint64_t _sequence      # of the next timer
        readonly uint64_t cancelled
    cdef int push(self, TimerHandle timer) except -1
    cdef double first(self) noexcept                 # earliest deadline; only if size > 0
    cdef TimerHandle pop(self)                       # only if size > 0
    cdef int remove(self, TimerHandle timer) except -1
    cdef int clear(self) except -1
    cdef uint64_t scheduled(self) noexcept
    cdef int _sift_up(self, Py_ssize_t hole, TimerKey key, PyObject *timer) except -1
    cdef int _sift_down(self, Py_ssize_t hole, TimerKey key, PyObject *timer) except -1
    cdef void _put(self, Py_ssize_t at, TimerKey key, PyObject *timer) noexcept
    cdef int _resize(self, Py_ssize_t capacity) except -1


cdef inline TimerHandle new_timer(
        double deadline, object callback, tuple args, object loop, object context):
    cdef TimerHandle timer = TimerHandle.__new__(TimerHandle)
    timer.deadline = deadline
    timer._callback = callback
    timer._args = args
    timer._loop = loop
    timer._context = context
    return timer
