"""Where the next bytes go: plain and buffered protocols."""

import asyncio

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject

from eploop.buffers cimport READ_BYTES, SharedBuffers
from eploop.handles cimport enter_context, exit_context

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **data, Py_ssize_t n) except -1

cdef extern from *:
    """
    /* A reference becomes the caller's object. */
    #define eploop_give(o) (o)
    """
    bytes give "eploop_give"(PyObject *o)
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *start, Py_ssize_t n) except NULL
    char *bytes_start "PyBytes_AS_STRING"(PyObject *o)
    void drop "Py_DECREF"(PyObject *o)

cdef enum:
    # From this size on, receiving into a bytes object beats copying out of the shared buffer.
    BULK_BYTES = 16384


cdef class Receiver:

    cdef int space(self, char **start, Py_ssize_t *room) except -1:
        return 0

    cdef int filled(self, Py_ssize_t n) except -1:
        return 0

    cdef int unused(self) except -1:
        return 0

    cdef bint eof(self) except -1:
        enter_context(self._context)
        try:
            return bool(self._protocol.eof_received())
        finally:
            exit_context(self._context)

    cdef str failed(self):
        return ""


@cython.final
cdef class BytesReceiver(Receiver):
    """asyncio.Protocol: each read becomes one bytes object."""
    cdef:
        SharedBuffers _shared
        PyObject *_fresh     # an unfilled bytes object of READ_BYTES, or NULL
        bint _bulk           # the last read was large, so expect another

    def __dealloc__(self):
        self.unused()

    cdef int space(self, char **start, Py_ssize_t *room) except -1:
        room[0] = READ_BYTES
        if not self._bulk:
            start[0] = self._shared.read()
            return 0
        if self._fresh is NULL:
            self._fresh = new_bytes(NULL, READ_BYTES)
        start[0] = bytes_start(self._fresh)
        return 0

    cdef int filled(self, Py_ssize_t n) except -1:
        cdef:
            bytes data
            PyObject *fresh = self._fresh
        if fresh is NULL:
            data = PyBytes_FromStringAndSize(self._shared.read(), n)
        elif n < BULK_BYTES:
            data = PyBytes_FromStringAndSize(bytes_start(fresh), n)
            self.unused()
        else:
            self._fresh = NULL
            if n < READ_BYTES:
                _PyBytes_Resize(&fresh, n)
            data = give(fresh)
        self._bulk = n >= BULK_BYTES
        enter_context(self._context)
        try:
            self._protocol.data_received(data)
        finally:
            exit_context(self._context)
        return 0

    cdef int unused(self) except -1:
        if self._fresh is not NULL:
            drop(self._fresh)
            self._fresh = NULL
        return 0

    cdef str failed(self):
        return "protocol.data_received() call failed."


@cython.final
cdef class BufferReceiver(Receiver):
    """asyncio.BufferedProtocol: bytes go straight into the buffer it gives."""
    cdef:
        Py_buffer _view
        bint _held
        bint _updating

    def __dealloc__(self):
        self.unused()

    cdef int space(self, char **start, Py_ssize_t *room) except -1:
        self._updating = False
        enter_context(self._context)
        try:
            buffer = self._protocol.get_buffer(-1)
        finally:
            exit_context(self._context)
        PyObject_GetBuffer(buffer, &self._view, PyBUF_WRITABLE)
        self._held = True
        if self._view.len == 0:
            self.unused()
            raise RuntimeError("get_buffer() returned an empty buffer")
        start[0] = <char *>self._view.buf
        room[0] = self._view.len
        return 0

    cdef int filled(self, Py_ssize_t n) except -1:
        # Released first: the protocol may want to resize what it gave.
        self.unused()
        self._updating = True
        enter_context(self._context)
        try:
            self._protocol.buffer_updated(n)
        finally:
            exit_context(self._context)
        return 0

    cdef int unused(self) except -1:
        if self._held:
            self._held = False
            PyBuffer_Release(&self._view)
        return 0

    cdef str failed(self):
        if self._updating:
            return "protocol.buffer_updated() call failed."
        return "protocol.get_buffer() call failed."


cdef Receiver receiver_for(object protocol, object context, SharedBuffers shared):
    cdef:
        Receiver receiver
        BytesReceiver plain
    if isinstance(protocol, Receiver):    # it receives by itself: TLS
        receiver = <Receiver>protocol
        receiver._context = context
        return receiver
    if isinstance(protocol, asyncio.BufferedProtocol):
        receiver = BufferReceiver.__new__(BufferReceiver)
    else:
        plain = BytesReceiver.__new__(BytesReceiver)
        plain._shared = shared
        receiver = plain
    receiver._protocol = protocol
    receiver._context = context
    return receiver
