"""Shows the write queue to the tests."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc

from eploop.buffers cimport WriteQueue, immutable as c_immutable
from eploop.syscalls.sock cimport iovec


def immutable(data):
    return c_immutable(data)


cdef class Queue:
    cdef WriteQueue queue

    def __cinit__(self):
        self.queue = WriteQueue()

    def push(self, bytes data, Py_ssize_t offset=0):
        self.queue.push(data, offset)

    def advance(self, Py_ssize_t n):
        self.queue.advance(n)

    def clear(self):
        self.queue.clear()

    def vector(self, Py_ssize_t room):
        """What one sendmsg with `room` parts would be offered."""
        cdef iovec *parts = <iovec *>PyMem_Malloc(room * sizeof(iovec))
        cdef Py_ssize_t i, n
        try:
            n = self.queue.vector(parts, room)
            return [PyBytes_FromStringAndSize(<char *>parts[i].iov_base, parts[i].iov_len)
                    for i in range(n)]
        finally:
            PyMem_Free(parts)

    def copy(self, Py_ssize_t room):
        cdef char *target = <char *>PyMem_Malloc(max(room, 1))
        try:
            return PyBytes_FromStringAndSize(target, self.queue.copy(target, room))
        finally:
            PyMem_Free(target)

    @property
    def size(self):
        return self.queue.size

    @property
    def count(self):
        return self.queue.count
