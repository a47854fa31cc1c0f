"""Where bytes lie on their way: the loop's shared buffers, and the queue of what is unsent."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.string cimport memcpy

from eploop.syscalls.sock cimport iovec

cdef extern from *:
    void drop "Py_DECREF"(PyObject *o)

cdef enum:
    INLINE = 4


@cython.final
cdef class SharedBuffers:

    def __dealloc__(self):
        PyMem_Free(self._read)
        PyMem_Free(self._join)

    cdef char *read(self) except NULL:
        if self._read is NULL:
            self._read = <char *>PyMem_Malloc(READ_BYTES)
            if self._read is NULL:
                raise MemoryError
        return self._read

    cdef char *join(self) except NULL:
        if self._join is NULL:
            self._join = <char *>PyMem_Malloc(JOIN_BYTES)
            if self._join is NULL:
                raise MemoryError
        return self._join


cdef bytes immutable(object data):
    """`data` itself if it is bytes, else a copy that later changes of `data` do not reach."""
    cdef Py_buffer view
    if type(data) is bytes:
        return <bytes>data
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return PyBytes_FromStringAndSize(<char *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


@cython.final
@cython.freelist(16)
cdef class WriteQueue:

    def __cinit__(self):
        self._segments = self._inline
        self._capacity = INLINE

    def __dealloc__(self):
        self.clear()
        if self._segments is not self._inline:
            PyMem_Free(self._segments)

    cdef int push(self, bytes data, Py_ssize_t offset) except -1:
        return self.push_part(data, PyBytes_AS_STRING(data) + offset,
                              PyBytes_GET_SIZE(data) - offset)

    cdef int push_part(self, bytes owner, const char *start, Py_ssize_t n) except -1:
        cdef Segment *segment
        if n == 0:
            return 0
        if self._head + self.count == self._capacity:
            self._make_room()
        segment = &self._segments[self._head + self.count]
        # SAFETY: bytes never move or change; the queue owns this reference until advance().
        Py_INCREF(owner)
        segment.owner = <PyObject *>owner
        segment.start = start
        segment.left = n
        self.count += 1
        self.size += n
        return 0

    cdef int _make_room(self) except -1:
        cdef:
            Segment *wider = self._segments
            Py_ssize_t capacity = self._capacity
        if 2 * self.count > capacity:
            capacity *= 2
            wider = <Segment *>PyMem_Malloc(capacity * sizeof(Segment))
            if wider is NULL:
                raise MemoryError
        # Without growth the halves cannot overlap: at most half of the places are in use.
        memcpy(wider, self._segments + self._head, self.count * sizeof(Segment))
        if wider is not self._segments:
            if self._segments is not self._inline:
                PyMem_Free(self._segments)
            self._segments = wider
            self._capacity = capacity
        self._head = 0
        return 0

    cdef Py_ssize_t vector(self, iovec *parts, Py_ssize_t room) noexcept:
        cdef:
            Segment *segment = self._segments + self._head
            Py_ssize_t n = min(room, self.count)
            Py_ssize_t i
        for i in range(n):
            parts[i].iov_base = <void *>segment[i].start
            parts[i].iov_len = segment[i].left
        return n

    cdef Py_ssize_t copy(self, char *target, Py_ssize_t room) noexcept:
        cdef:
            Segment *segment = self._segments + self._head
            Py_ssize_t copied = 0
            Py_ssize_t i, n
        for i in range(self.count):
            n = min(segment[i].left, room - copied)
            memcpy(target + copied, segment[i].start, n)
            copied += n
        return copied

    cdef int advance(self, Py_ssize_t n) except -1:
        cdef Segment *segment
        self.size -= n
        while n > 0:
            segment = &self._segments[self._head]
            if n < segment.left:
                segment.start += n
                segment.left -= n
                return 0
            n -= segment.left
            self._head += 1
            self.count -= 1
            drop(segment.owner)
        if self.count == 0:
            self._head = 0
        return 0

    cdef int clear(self) except -1:
        return self.advance(self.size)


cdef int check_bytes_like(object data) except -1:
    """What asyncio's transports say of what they cannot send."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"data argument must be a bytes-like object, not {type(data).__name__!r}")
    return 0
