# Where bytes lie on their way: the loop's shared buffers, and the queue of what is not sent yet.

from cpython.object cimport PyObject

from eploop.syscalls.sock cimport iovec

cdef enum:
    # One receive. A little more than 64 KiB, so that a message of just that size is a short read,
    # which proves the socket drained; 128 KiB and more would come from mmap, page by page.
    READ_BYTES = 69000
    JOIN_BYTES = 16384      # up to here copying together is cheaper than an iovec each


cdef class SharedBuffers:
    """Scratch memory of one loop, made at first use. Never holds anything across a callback."""
    cdef:
        char *_read
        char *_join
    cdef char *read(self) except NULL    # READ_BYTES
    cdef char *join(self) except NULL    # JOIN_BYTES


cdef struct Segment:
    PyObject *owner         # a bytes object; the queue's reference
    const char *start
    Py_ssize_t left


cdef class WriteQueue:
    """Bytes in order, kept by reference. Counts bytes, not items."""
    cdef:
        Segment *_segments
        Segment _inline[4]
        Py_ssize_t _capacity
        Py_ssize_t _head
        Py_ssize_t count
        Py_ssize_t size     # bytes
    cdef int push(self, bytes data, Py_ssize_t offset) except -1
    cdef int push_part(self, bytes owner, const char *start, Py_ssize_t n) except -1
    cdef Py_ssize_t vector(self, iovec *parts, Py_ssize_t room) noexcept    # parts filled
    cdef Py_ssize_t copy(self, char *target, Py_ssize_t room) noexcept      # bytes copied
    cdef int advance(self, Py_ssize_t n) except -1    # n bytes were sent
    cdef int clear(self) except -1
    cdef int _make_room(self) except -1


cdef bytes immutable(object data)
cdef int check_bytes_like(object data) except -1    # TypeError
