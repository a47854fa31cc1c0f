# The ready queue: a ring of runnables, and a stack on which other threads post.

from cpython.object cimport PyObject

from eploop.handles cimport Runnable, ThreadsafeHandle


cdef class ReadyQueue:
    cdef:
        # The ring. A list, so that the garbage collector sees what stands in it; the slots that
        # hold nothing are NULL, and nobody else ever sees the list.
        list _ring
        Py_ssize_t _mask         # capacity - 1; the capacity is a power of two
        Py_ssize_t _head
        Py_ssize_t size
        # Posted from other threads, newest first; CLOSED once closed.
        void *_posted
    cdef int push(self, Runnable job) except -1
    cdef Runnable popleft(self)    # only if size > 0
    cdef bint post(self, ThreadsafeHandle handle) noexcept    # false: closed
    cdef bint has_posted(self) noexcept
    cdef int collect(self) except -1    # what was posted joins the ring
    cdef int close(self) except -1
    cdef int _append(self, Runnable job) except -1
    cdef int _append_posted(self, PyObject *newest) except -1
    cdef int _grow(self) except -1
