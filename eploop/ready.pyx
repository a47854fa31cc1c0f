"""The ready queue: a ring of runnables, and a stack on which other threads post."""

cimport cython
from cpython.list cimport PyList_New
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF

from eploop.handles cimport ThreadsafeHandle
from eploop.syscalls cimport atomic

cdef extern from *:
    """
    #define eploop_list_items(l) (((PyListObject *)(l))->ob_item)
    static char eploop_closed_mark;
    #define EPLOOP_CLOSED ((void *)&eploop_closed_mark)
    """
    PyObject **list_items "eploop_list_items"(list l)
    void *CLOSED "EPLOOP_CLOSED"
    void drop "Py_DECREF"(PyObject *o)

cdef enum:
    CAPACITY = 64    # to begin with; a power of two


@cython.final
cdef class ReadyQueue:

    def __cinit__(self):
        self._ring = PyList_New(CAPACITY)
        self._mask = CAPACITY - 1

    cdef int _grow(self) except -1:
        cdef:
            list wider = PyList_New(2 * (self._mask + 1))
            PyObject **old = list_items(self._ring)
            PyObject **new = list_items(wider)
            Py_ssize_t i
        if self.size <= self._mask:
            # Before Python 3.12 making a list may collect garbage, and a finalizer that schedules
            # something came here first.
            return 0
        for i in range(self.size):
            new[i] = old[(self._head + i) & self._mask]
        # SAFETY: the references moved; the old list must not drop them.
        for i in range(self._mask + 1):
            old[i] = NULL
        self._ring = wider
        self._mask = 2 * self._mask + 1
        self._head = 0
        return 0

    cdef bint post(self, ThreadsafeHandle handle) noexcept:
        cdef void *newest = atomic.load_pointer(&self._posted, atomic.SEQ_CST)
        while newest is not CLOSED:
            handle._next = <PyObject *>newest
            # SAFETY: the stack owns this reference until collect() or close() takes it over.
            Py_INCREF(handle)
            if atomic.replace_pointer(&self._posted, &newest, <void *>handle, False,
                                      atomic.SEQ_CST, atomic.SEQ_CST):
                return True
            drop(<PyObject *>handle)
        return False

    cdef bint has_posted(self) noexcept:
        return atomic.load_pointer(&self._posted, atomic.SEQ_CST) is not NULL

    cdef int collect(self) except -1:
        if self._posted is CLOSED:
            return 0
        return self._append_posted(
            <PyObject *>atomic.exchange_pointer(&self._posted, NULL, atomic.SEQ_CST))

    cdef int _append_posted(self, PyObject *newest) except -1:
        cdef:
            PyObject *oldest = NULL
            PyObject *following
            ThreadsafeHandle handle
        while newest is not NULL:
            following = (<ThreadsafeHandle>newest)._next
            (<ThreadsafeHandle>newest)._next = oldest
            oldest = newest
            newest = following
        while oldest is not NULL:
            handle = <ThreadsafeHandle>oldest
            drop(oldest)    # `handle` holds it now
            oldest = handle._next
            self._append(handle)
        return 0

    cdef int close(self) except -1:
        """Drop everything; what is posted from now on is refused."""
        cdef void *posted = atomic.exchange_pointer(&self._posted, CLOSED, atomic.SEQ_CST)
        cdef list old
        if posted is not CLOSED:
            self._append_posted(<PyObject *>posted)
        # What is dropped may run finalizers, which may push: not before all fits together.
        old = self._ring
        self._ring = PyList_New(CAPACITY)
        self._mask = CAPACITY - 1
        self._head = 0
        self.size = 0
        old = None
        return 0
