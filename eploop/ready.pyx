"""The ready queue: a ring of runnables, and a stack on which other threads post."""

cimport cython
from cpython.object cimport PyObject, PyTypeObject
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

cdef extern from *:
    """
    /* What was posted is in no list: the garbage collector has to be shown it. */
    typedef PyObject *(*eploop_posted)(PyObject *queue, PyObject *after);
    static eploop_posted eploop_next_posted;
    static traverseproc eploop_traverse_rest;

    static int eploop_traverse(PyObject *queue, visitproc visit, void *arg) {
        PyObject *posted = eploop_next_posted(queue, NULL);
        for (; posted != NULL; posted = eploop_next_posted(queue, posted))
            Py_VISIT(posted);
        return eploop_traverse_rest(queue, visit, arg);
    }
    static void eploop_show_posted(PyTypeObject *type, eploop_posted next) {
        eploop_next_posted = next;
        eploop_traverse_rest = type->tp_traverse;
        type->tp_traverse = eploop_traverse;
    }
    """
    ctypedef PyObject *(*posted_function "eploop_posted")(PyObject *queue,
                                                          PyObject *after) noexcept
    void show_posted "eploop_show_posted"(PyTypeObject *kind, posted_function following)

cdef enum:
    CAPACITY = 64    # to begin with; a power of two


@cython.final
cdef class ReadyQueue:

    def __cinit__(self):
        self._ring = [None] * CAPACITY
        self._mask = CAPACITY - 1

    def __dealloc__(self):
        self._drop_posted()

    cdef int _grow(self) except -1:
        cdef:
            list wider = [None] * (2 * (self._mask + 1))
            PyObject **old = list_items(self._ring)
            PyObject **new = list_items(wider)
            PyObject *nothing
            Py_ssize_t i, at
        if self.size <= self._mask:
            # Before Python 3.12 making a list may collect garbage, and a finalizer that schedules
            # something came here first.
            return 0
        for i in range(self.size):
            # SAFETY: the two lists change references, so that each drops what it holds.
            at = (self._head + i) & self._mask
            nothing = new[i]
            new[i] = old[at]
            old[at] = nothing
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

    cdef void _drop_posted(self) noexcept:
        """The queue goes away, never closed."""
        cdef:
            PyObject *newest = <PyObject *>atomic.exchange_pointer(
                &self._posted, CLOSED, atomic.SEQ_CST)
            PyObject *following
        while newest is not NULL and newest is not <PyObject *>CLOSED:
            following = (<ThreadsafeHandle>newest)._next
            drop(newest)
            newest = following

    cdef int close(self) except -1:
        """Drop everything; what is posted from now on is refused."""
        cdef void *posted = atomic.exchange_pointer(&self._posted, CLOSED, atomic.SEQ_CST)
        cdef list old
        if posted is not CLOSED:
            self._append_posted(<PyObject *>posted)
        # What is dropped may run finalizers, which may push: not before all fits together.
        old = self._ring
        self._ring = [None] * CAPACITY
        self._mask = CAPACITY - 1
        self._head = 0
        self.size = 0
        old = None
        return 0


cdef PyObject *next_posted(PyObject *queue, PyObject *after) noexcept:
    """The newest posted handle, or the one posted before `after`; NULL if there is none."""
    cdef void *posted = (<ReadyQueue>queue)._posted
    if after is not NULL:
        return (<ThreadsafeHandle>after)._next
    return NULL if posted is CLOSED else <PyObject *>posted


show_posted(<PyTypeObject *>ReadyQueue, next_posted)
