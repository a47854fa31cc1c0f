"""The lower side of a TLS connection: what the connection below takes for its protocol."""

import asyncio

cimport cython
from cpython.buffer cimport PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory

from eploop.buffers cimport READ_BYTES
from eploop.receivers cimport Receiver
from eploop.tls.connection cimport TLSConnection


@cython.final
cdef class TLSProtocol(Receiver):
    """asyncio.BufferedProtocol."""

    def __dealloc__(self):
        PyMem_Free(self._own)

    @property
    def __class__(self):
        return asyncio.BufferedProtocol

    # ---- as a receiver of our streams, and of TLS itself

    cdef int space(self, char **start, Py_ssize_t *room) except -1:
        room[0] = READ_BYTES
        start[0] = (self._tls._shared.cipher() if self._tls._stream is not None
                    else self._own_space())
        return 0

    cdef int filled(self, Py_ssize_t n) except -1:
        cdef TLSConnection tls = self._tls
        tls.received(tls._shared.cipher() if tls._stream is not None else self._own, n)
        return 0

    cdef bint eof(self) except -1:
        return self._tls.ended()

    cdef str failed(self):
        return "protocol.buffer_updated() call failed."

    cdef char *_own_space(self) except NULL:
        # Not the loop's: a connection below that deciphers, too, may be using it right now.
        if self._own is NULL:
            self._own = <char *>PyMem_Malloc(READ_BYTES)
            if self._own is NULL:
                raise MemoryError
        return self._own

    # ---- as the protocol of whatever transport there is

    def connection_made(self, transport):
        self._tls.begin(transport)

    def get_buffer(self, sizehint):
        return PyMemoryView_FromMemory(self._own_space(), READ_BYTES, PyBUF_WRITE)

    def buffer_updated(self, Py_ssize_t nbytes):
        self._tls.received(self._own, nbytes)

    def data_received(self, bytes data):
        """For transports that know no buffers."""
        self._tls.received(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def eof_received(self):
        return self._tls.ended()

    def connection_lost(self, exc):
        self._tls.lost(exc)

    def pause_writing(self):
        self._tls.full()

    def resume_writing(self):
        self._tls.drained()

    def __repr__(self):
        return f"<TLSProtocol of {self._tls!r}>"
