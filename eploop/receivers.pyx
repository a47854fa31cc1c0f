"""Where the next bytes go: plain and buffered protocols, and asyncio's own StreamReader.

Source: CPython 3.13 asyncio.streams.StreamReader.feed_data, StreamReaderProtocol.data_received.
"""

import asyncio
import weakref

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.string cimport memcpy

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


@cython.final
cdef class ReaderReceiver(Receiver):
    """asyncio.StreamReader: bytes go straight into its buffer, as feed_data() would put them there.

    No code of the program runs here, so its context need not be entered.
    """
    cdef:
        SharedBuffers _shared
        object _reader      # a weak reference, as the protocol's own

    cdef int space(self, char **start, Py_ssize_t *room) except -1:
        start[0] = self._shared.read()
        room[0] = READ_BYTES
        return 0

    cdef int filled(self, Py_ssize_t n) except -1:
        cdef:
            object reader = self._reader()
            object waiter
            bytearray buffer
            Py_ssize_t size
        if reader is None:
            return 0    # nobody is going to read
        if reader._eof:
            reader.feed_data(PyBytes_FromStringAndSize(self._shared.read(), n))    # raises
            return 0
        buffer = reader._buffer
        size = PyByteArray_GET_SIZE(buffer)
        PyByteArray_Resize(buffer, size + n)
        memcpy(PyByteArray_AS_STRING(buffer) + size, self._shared.read(), <size_t>n)
        waiter = reader._waiter
        if waiter is not None:
            reader._waiter = None
            if not waiter.cancelled():
                waiter.set_result(None)
        if size + n > 2 * <Py_ssize_t>reader._limit and not reader._paused:
            self._pause(reader)
        return 0

    cdef int _pause(self, object reader) except -1:
        if reader._transport is None:
            return 0
        try:
            reader._transport.pause_reading()
        except NotImplementedError:
            reader._transport = None
        else:
            reader._paused = True
        return 0

    cdef str failed(self):
        return "protocol.data_received() call failed."


cdef object FEED_DATA = asyncio.StreamReader.feed_data
cdef object DATA_RECEIVED = asyncio.StreamReaderProtocol.data_received


cdef bint is_stock_reader(object protocol, object reader) except -1:
    """Nothing of what `ReaderReceiver` does itself was replaced, in a subclass or by patching."""
    return (type(reader) is asyncio.StreamReader
            and asyncio.StreamReader.feed_data is FEED_DATA
            and asyncio.StreamReaderProtocol.data_received is DATA_RECEIVED
            and type(reader._buffer) is bytearray
            and "feed_data" not in reader.__dict__
            and "data_received" not in protocol.__dict__)


cdef Receiver receiver_for(object protocol, object context, SharedBuffers shared):
    cdef:
        Receiver receiver
        BytesReceiver plain
        ReaderReceiver reading
        object reader
    if isinstance(protocol, Receiver):    # it receives by itself: TLS
        receiver = <Receiver>protocol
        receiver._context = context
        return receiver
    reader = (protocol._stream_reader if type(protocol) is asyncio.StreamReaderProtocol else None)
    if reader is not None and is_stock_reader(protocol, reader):
        reading = ReaderReceiver.__new__(ReaderReceiver)
        reading._shared = shared
        reading._reader = weakref.ref(reader)
        receiver = reading
    elif isinstance(protocol, asyncio.BufferedProtocol):
        receiver = BufferReceiver.__new__(BufferReceiver)
    else:
        plain = BytesReceiver.__new__(BytesReceiver)
        plain._shared = shared
        receiver = plain
    receiver._protocol = protocol
    receiver._context = context
    return receiver
