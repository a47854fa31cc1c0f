"""A TLS connection as the program sees it: asyncio.Transport.

Source: CPython 3.13 asyncio.sslproto._SSLProtocolTransport.
"""

import asyncio
import warnings
from asyncio import sslproto
from asyncio.constants import FLOW_CONTROL_HIGH_WATER_SSL_WRITE

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from eploop.buffers cimport check_bytes_like, immutable
from eploop.receivers cimport receiver_for
from eploop.tls.connection cimport OVER, WRAPPED, TLSConnection
from eploop.tls.engine cimport SharedTLS
from eploop.tls.protocol cimport TLSProtocol

cdef enum:
    RECORD_BYTES = 16384
    KIB = 1024

# Extra info that is made when it is asked for.
cdef dict METHODS = {"peercert": "getpeercert", "cipher": "cipher", "compression": "compression"}


def make_tls_transport(loop, SharedTLS shared, protocol, context, waiter, *, server_side=False,
                       server_hostname=None, handshake_timeout, shutdown_timeout, made=False):
    """A TLS transport that waits for its connection, whose protocol is its `_ssl_protocol`.

    Args:
        waiter: A future that gets its result, or the failure, when the handshake is over.
        handshake_timeout, shutdown_timeout: Seconds.
        made: The protocol has been told of its connection (start_tls).

    Raises:
        ValueError, ssl.SSLError: What `SSLContext.wrap_bio` raises.
    """
    cdef:
        TLSTransport tls = TLSTransport.__new__(TLSTransport)
        TLSProtocol lower = TLSProtocol.__new__(TLSProtocol)
    tls._engine = shared.engine(context, server_side, server_hostname)
    tls._extra = {"sslcontext": context}
    tls._loop = loop
    tls._shared = shared
    tls._protocol = protocol
    tls._waiter = waiter
    tls._handshake_s = handshake_timeout
    tls._shutdown_s = shutdown_timeout
    tls._made = made
    tls._lower = lower
    lower._tls = tls
    return tls


def read_ahead(TLSTransport tls, bytes data):
    """`data` came before the handshake and belongs to it."""
    tls._engine.feed(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    tls._engine.keep()


@cython.final
cdef class TLSTransport(TLSConnection):
    """A TLS connection: asyncio.Transport."""

    _start_tls_compatible = True
    _sendfile_compatible = asyncio.constants._SendfileMode.FALLBACK

    @property
    def __class__(self):
        # For programs that ask for asyncio's own; also what its sendfile fallback asks for.
        return sslproto._SSLProtocolTransport

    @property
    def _ssl_protocol(self):
        """The connection's other side, by asyncio's name for it; None once over."""
        return self._lower

    # ---- reading

    def pause_reading(self):
        """No data_received() until `resume_reading`."""
        if not self._closing and not self._paused:
            self._paused = True
            self._below.pause_reading()

    def resume_reading(self):
        """Undo `pause_reading`; data that waits is delivered in a later turn, never from here."""
        if self._closing or not self._paused:
            return
        self._paused = False
        self._below.resume_reading()
        if self._ended or self._engine.ended or self._engine.has_more():
            self._enqueue()

    def is_reading(self):
        return not self._closing and not self._paused

    def get_protocol(self):
        return self._protocol

    def set_protocol(self, protocol):
        """Hand the connection to `protocol`; takes effect from the next read."""
        self._protocol = protocol
        if self._above is not None:
            self._above = receiver_for(protocol, self._context, self._loop.shared)

    # ---- writing

    def write(self, data):
        """Encipher and send `data`, now or as soon as the kernel has room.

        Args:
            data: bytes, bytearray or memoryview (C-contiguous).

        Raises:
            TypeError: `data` is something else.
        """
        cdef Py_buffer view
        if type(data) is bytes:
            self.write_bytes(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            return
        check_bytes_like(data)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.write_bytes(<const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    def writelines(self, list_of_data):
        """Send each item of an iterable, small ones in one record. As `write` otherwise."""
        cdef:
            list parts = []
            Py_ssize_t size = 0
            bytes part
        for data in list_of_data:
            check_bytes_like(data)
            part = immutable(data)
            size += PyBytes_GET_SIZE(part)
            parts.append(part)
        if size <= RECORD_BYTES:
            parts = [b"".join(parts)]
        for part in parts:
            self.write_bytes(PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))

    def write_eof(self):
        """TLS has no half-closed connections.

        Raises:
            NotImplementedError: Always, as `can_write_eof` says.
        """
        raise NotImplementedError("a TLS connection cannot be half closed")

    def can_write_eof(self):
        return False

    # ---- flow control

    def set_write_buffer_limits(self, high=None, low=None):
        """Set the marks, in bytes of ciphertext, at which the protocol is paused and resumed.

        Args:
            high: pause_writing() when more than this is unsent. Default: 512 KiB, or 4 * low.
            low: resume_writing() when no more than this is unsent. Default: high // 4.

        Raises:
            ValueError: Not high >= low >= 0.
        """
        if high is None and low is None:
            high = FLOW_CONTROL_HIGH_WATER_SSL_WRITE * KIB
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self):
        """(low, high) in bytes."""
        return self._below.get_write_buffer_limits()

    def get_write_buffer_size(self):
        """Bytes written but not yet taken by the kernel, as ciphertext."""
        return self.unsent_bytes()

    @property
    def _protocol_paused(self):
        return self._full > 0

    # ---- the end

    def close(self):
        """Send what is unsent, say goodbye and close. connection_lost(None) follows."""
        if self._closing:
            # Nobody is going to ask. What is kept would wait for a garbage collection.
            self._extra.clear()
            return
        if self._state == WRAPPED:
            self._begin_shutdown()
        else:
            self.abort()

    def abort(self):
        """Close at once; what is unsent is dropped. connection_lost(None) follows."""
        self._force_close(None)

    def _force_close(self, exc):
        self._closing = True
        if self._state != OVER:
            self._state = OVER
            self._end_below(exc)

    def is_closing(self):
        """True once closing or closed."""
        return bool(self._closing)

    def __del__(self):
        if not self._closing and self._below is not None:
            warnings.warn(f"unclosed transport {self!r}", ResourceWarning, source=self)

    # ---- asking

    def get_extra_info(self, name, default=None):
        """As asyncio; available after the end as well."""
        if name in self._extra:
            return self._extra[name]
        if name in METHODS and "ssl_object" in self._extra:
            self._extra[name] = getattr(self._extra["ssl_object"], METHODS[name])()
            return self._extra[name]
        if self._below is None:
            return default
        return self._below.get_extra_info(name, default)

    def __repr__(self):
        state = ("fresh", "handshake", "open", "closing", "closed")[self._state]
        return f"<TLSTransport {state} over {self._below!r}>"
