"""Timers: TimerHandle and the heap that orders them.

An indexed 4-ary heap on (deadline, sequence). Cancelling takes a timer out at once, so that what
its callback holds is released then and not at the deadline.
"""

import asyncio

cimport cython
from cpython.list cimport PyList_New
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from eploop.handles cimport Handle

cdef extern from *:
    """
    #define eploop_list_items(l) (((PyListObject *)(l))->ob_item)
    #define eploop_list_length(l, n) Py_SET_SIZE((PyListObject *)(l), (n))
    """
    PyObject **list_items "eploop_list_items"(list l)
    # The rest of its places are spare, as those that append() keeps.
    void set_length "eploop_list_length"(list l, Py_ssize_t n)
    void drop "Py_DECREF"(PyObject *o)

cdef enum:
    INITIAL_CAPACITY = 64


@cython.final
cdef class TimerHandle(Handle):
    """A callback with a deadline, as asyncio.TimerHandle.

    Source: CPython 3.13 asyncio.events.TimerHandle.
    """

    @property
    def __class__(self):
        return asyncio.TimerHandle

    def when(self):
        """The deadline in seconds of `loop.time()`."""
        return self.deadline

    @property
    def _when(self):
        return self.deadline

    @property
    def _scheduled(self):
        return self._heap is not None

    cdef int _cancel(self) except -1:
        if self._heap is not None:
            self._heap.cancelled += 1
            self._heap.remove(self)
        return Handle._cancel(self)

    cdef list _repr_extra(self):
        return [f"when={self.deadline}"]

    def __hash__(self):
        return hash(self.deadline)

    def __eq__(self, other):
        cdef TimerHandle that
        if type(other) is not TimerHandle:
            return NotImplemented
        that = <TimerHandle>other
        return (self.deadline == that.deadline and self._callback == that._callback
                and self._args == that._args and self._cancelled == that._cancelled)

    def __lt__(self, other):
        if type(other) is not TimerHandle:
            return NotImplemented
        return self.deadline < (<TimerHandle>other).deadline

    def __le__(self, other):
        if type(other) is not TimerHandle:
            return NotImplemented
        return self.deadline < (<TimerHandle>other).deadline or self == other

    def __gt__(self, other):
        if type(other) is not TimerHandle:
            return NotImplemented
        return self.deadline > (<TimerHandle>other).deadline

    def __ge__(self, other):
        if type(other) is not TimerHandle:
            return NotImplemented
        return self.deadline > (<TimerHandle>other).deadline or self == other


cdef inline bint earlier(const TimerKey *a, const TimerKey *b) noexcept nogil:
    return a.when < b.when or (a.when == b.when and a.sequence < b.sequence)


@cython.final
cdef class TimerHeap:

    def __cinit__(self):
        self._timers = []

    def __dealloc__(self):
        PyMem_Free(self._keys)

    cdef int push(self, TimerHandle timer) except -1:
        cdef TimerKey key
        while self.size == self._capacity:
            self._resize(2 * self._capacity if self._capacity else INITIAL_CAPACITY)
        key.when = timer.deadline
        key.sequence = self._sequence
        self._sequence += 1
        timer._heap = self
        Py_INCREF(timer)
        self._sift_up(self.size, key, <PyObject *>timer)
        self.size += 1
        set_length(self._timers, self.size)
        return 0

    cdef double first(self) noexcept:
        return self._keys[0].when

    cdef TimerHandle pop(self):
        cdef TimerHandle timer = <TimerHandle>list_items(self._timers)[0]
        self.remove(timer)
        return timer

    cdef int remove(self, TimerHandle timer) except -1:
        cdef:
            PyObject **timers = list_items(self._timers)
            Py_ssize_t hole = timer._index
            Py_ssize_t last = self.size - 1
            PyObject *moved = timers[last]
        self.size = last
        set_length(self._timers, last)
        if hole < last:
            # The last one fills the hole, and moves up or down from there.
            if hole > 0 and earlier(&self._keys[last], &self._keys[(hole - 1) >> 2]):
                self._sift_up(hole, self._keys[last], moved)
            else:
                self._sift_down(hole, self._keys[last], moved)
        timer._heap = None
        # SAFETY: the caller holds the timer; this is the heap's reference.
        drop(<PyObject *>timer)
        if self._capacity > INITIAL_CAPACITY and last < self._capacity >> 3:
            self._resize(self._capacity >> 1)
        return 0

    cdef int clear(self) except -1:
        while self.size:
            self.pop()
        return 0

    cdef uint64_t scheduled(self) noexcept:
        return self._sequence

    cdef int _sift_up(self, Py_ssize_t hole, TimerKey key, PyObject *timer) except -1:
        cdef:
            PyObject **timers = list_items(self._timers)
            Py_ssize_t parent
        while hole > 0:
            parent = (hole - 1) >> 2
            if not earlier(&key, &self._keys[parent]):
                break
            self._put(hole, self._keys[parent], timers[parent])
            hole = parent
        self._put(hole, key, timer)
        return 0

    cdef int _sift_down(self, Py_ssize_t hole, TimerKey key, PyObject *timer) except -1:
        cdef:
            PyObject **timers = list_items(self._timers)
            Py_ssize_t child, best, end
        while True:
            child = 4 * hole + 1
            if child >= self.size:
                break
            best = child
            end = min(child + 4, self.size)
            for child in range(best + 1, end):
                if earlier(&self._keys[child], &self._keys[best]):
                    best = child
            if not earlier(&self._keys[best], &key):
                break
            self._put(hole, self._keys[best], timers[best])
            hole = best
        self._put(hole, key, timer)
        return 0

    cdef void _put(self, Py_ssize_t at, TimerKey key, PyObject *timer) noexcept:
        self._keys[at] = key
        list_items(self._timers)[at] = timer
        (<TimerHandle>timer)._index = at

    cdef int _resize(self, Py_ssize_t capacity) except -1:
        cdef:
            Py_ssize_t old_capacity = self._capacity
            list timers = PyList_New(capacity)
            TimerKey *keys
        if self._capacity != old_capacity or self.size > capacity:
            # Before Python 3.12 making a list may collect garbage, and a finalizer that schedules
            # something came here first.
            return 0
        keys = <TimerKey *>PyMem_Realloc(self._keys, capacity * sizeof(TimerKey))
        if keys is NULL:
            raise MemoryError
        self._keys = keys
        self._capacity = capacity
        # SAFETY: the references move; the old list must not drop them.
        memcpy(list_items(timers), list_items(self._timers), self.size * sizeof(PyObject *))
        set_length(timers, self.size)
        set_length(self._timers, 0)
        self._timers = timers
        return 0
