"""The life of a TLS connection: handshake, reading, writing, and the end.

There is one queue of what is unsent: that of the connection below, which holds ciphertext. Its
marks pause and resume the program's protocol. Nothing is held back before it, but plaintext that
OpenSSL cannot take, as while a handshake is under way.

Source: CPython 3.13 asyncio.sslproto.SSLProtocol; RFC 8446 section 6.1.
"""

import asyncio
from asyncio.constants import (
    FLOW_CONTROL_HIGH_WATER_SSL_WRITE, LOG_THRESHOLD_FOR_CONNLOST_WRITES,
)
from asyncio.log import logger

from cpython.bytes cimport PyBytes_FromStringAndSize

from eploop.buffers cimport READ_BYTES, WriteQueue
from eploop.handles cimport (
    PyErr_Clear, Runnable, copy_context, exit_context, try_enter_context,
)
from eploop.receivers cimport Receiver, receiver_for
from eploop.syscalls.sock cimport iovec
from eploop.tls.engine cimport Engine
from eploop.transports.stream cimport StreamTransport

try:
    from ssl import CertificateError, SSLError
except ImportError:
    CertificateError = SSLError = ()    # a Python without TLS

cdef enum:
    WRITE_BYTES = 65536             # plaintext given to OpenSSL at once
    KIB = 1024


cdef class TLSConnection(Runnable):

    # ---- the handshake

    cdef int begin(self, object below) except -1:
        """The connection below is there."""
        if self._state != FRESH:
            below.abort()    # it comes too late
            return 0
        self._below = below
        if type(below) is StreamTransport:
            self._stream = <StreamTransport>below
        if self._stream is not None or isinstance(below, TLSConnection):
            self._context = below._context
            below.set_write_buffer_limits(FLOW_CONTROL_HIGH_WATER_SSL_WRITE * KIB)
        else:
            self._context = copy_context()
        self._above = receiver_for(self._protocol, self._context, self._loop.shared)
        if self._loop.get_debug():
            logger.debug("%r starts SSL handshake", self)
            self._began = self._loop._now()
        self._state = HANDSHAKE
        self._timer = self._loop.call_later(self._handshake_s, self._check_handshake)
        return self._shake_hands()

    def _check_handshake(self):
        if self._state == HANDSHAKE:
            self._fatal(ConnectionAbortedError(
                f"SSL handshake is taking longer than {self._handshake_s} seconds: "
                "aborting the connection"), "Fatal error on transport")

    cdef int _shake_hands(self) except -1:
        cdef bint done
        try:
            done = self._engine.handshake()
        except Exception as exc:    # TLS's own, or that of a callback of the context
            self._send()            # the alert that says why
            return self._handshake_failed(exc)
        except BaseException:
            self._send()
            raise
        self._send()
        return self._shaken() if done else 0

    cdef int _handshake_failed(self, object exc) except -1:
        self._cancel_timer()
        self._fatal(exc, "SSL handshake failed on verifying the certificate"
                    if isinstance(exc, CertificateError) else "SSL handshake failed")
        return self._wake_waiter(exc)

    cdef int _shaken(self) except -1:
        self._cancel_timer()
        self._state = WRAPPED
        self._extra["ssl_object"] = self._engine.ssl_object
        if self._loop.get_debug():
            logger.debug("%r: SSL handshake took %.1f ms", self,
                         (self._loop._now() - self._began) * 1e3)
        self._engine.keep()
        if self._unwritten is not None:
            self._write_backlog()
            self._send()
        try:
            self._tell_made()
        finally:
            # What came with the handshake waits for whoever waits for the connection: after
            # start_tls() the protocol must know its new transport before it answers.
            if self._engine is not None and self._engine.has_more():
                self._enqueue()
        return 0

    cdef int _tell_made(self) except -1:
        if self._made:
            return self._wake_waiter(None)
        self._made = True
        try:
            self._inside(self._protocol.connection_made, (self,))
        except (SystemExit, KeyboardInterrupt):
            self._wake_waiter(None)
            raise
        except BaseException as exc:
            self._fatal(exc, "Fatal error: protocol.connection_made() call failed.")
            return self._wake_waiter(exc)
        return self._wake_waiter(None)

    cdef int _wake_waiter(self, object exc) except -1:
        cdef object waiter = self._waiter
        self._waiter = None
        if waiter is None or waiter.done():
            return 0
        if exc is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(exc)
        return 0

    cdef int _cancel_timer(self) except -1:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return 0

    # ---- reading

    cdef int received(self, const char *start, Py_ssize_t n) except -1:
        """Ciphertext came, in memory that is good until this returns."""
        if self._engine is None or self._state == OVER:
            return 0
        self._engine.feed(start, n)
        try:
            if self._state == WRAPPED:
                if not self._paused:
                    self._read()
            elif self._state == HANDSHAKE:
                self._shake_hands()
            else:
                self._shut_down()
        finally:
            if self._engine is not None:
                self._engine.keep()
        return 0

    cdef int run(self) except -1:
        """Go on with what had been received."""
        self._queued = False
        if self._state == WRAPPED and not self._paused:
            self._read()
            if self._ended and not self._paused and self._state == WRAPPED \
                    and not self._engine.has_more():
                self._call_eof_received()
                self._begin_shutdown()
        elif self._state == SHUTDOWN:
            self._shut_down()
        if self._engine is not None:
            self._engine.keep()
        return 0

    cdef int report(self, object exc) except -1:
        return self._fatal(exc, "Fatal error on SSL protocol")

    cdef int _enqueue(self) except -1:
        if self._queued:
            return 0
        self._queued = True
        return self._loop.defer(self)

    cdef int _read(self) except -1:
        """Decipher what there is, one call of the protocol; the rest in a later turn."""
        try:
            self._read_batch()
        except Exception as exc:
            return self._fatal(exc, "Fatal error on SSL protocol")
        except BaseException:
            self._enqueue()    # for what was not come to
            raise
        if self._state != WRAPPED:
            return 0
        if self._engine.failure is not None:
            return self._fatal(self._engine.failure, "Fatal error on SSL protocol")
        if self._unwritten is not None and self._write_backlog():
            self._send()
        if self._engine.ended:
            if not self._paused:
                self._call_eof_received()
                self._begin_shutdown()
        elif not self._paused and self._engine.has_more():
            self._enqueue()
        return 0

    cdef int _read_batch(self) except -1:
        cdef:
            Receiver above = self._above
            Engine engine = self._engine
            char *start = NULL
            Py_ssize_t room = 0
            Py_ssize_t n
        if engine.ended or engine.failure is not None:
            return 0
        above.space(&start, &room)
        if self._state != WRAPPED or self._paused:
            return above.unused()
        n = engine.read(start, room)
        # An answer to what was read: of a key update, an alert.
        self._send()
        if n == 0:
            return above.unused()
        # The shared buffers are not ours while the protocol has its turn.
        engine.keep()
        return above.filled(n)

    # ---- writing

    cdef int write_bytes(self, const char *start, Py_ssize_t n) except -1:
        cdef Py_ssize_t size
        if self._state != WRAPPED or self._unwritten is not None:
            return self._write_later(start, n)
        try:
            while n > 0:
                size = min(n, WRITE_BYTES)
                if not self._engine.write(start, size):
                    self._send()
                    return self._write_later(start, n)
                self._send()
                if self._state != WRAPPED:
                    return 0    # pause_writing() closed it
                start += size
                n -= size
        except Exception as exc:
            self._send()
            return self._fatal(exc, "Fatal error on SSL protocol")
        return 0

    cdef int _write_later(self, const char *start, Py_ssize_t n) except -1:
        if self._state == SHUTDOWN or self._state == OVER:
            if self._lost_writes >= LOG_THRESHOLD_FOR_CONNLOST_WRITES:
                logger.warning("SSL connection is closed")
            self._lost_writes += 1
            return 0
        if n == 0:
            return 0
        if self._unwritten is None:
            self._unwritten = WriteQueue.__new__(WriteQueue)
        while n > 0:
            # In pieces that OpenSSL gets again just so, as it asks after an SSL_ERROR_WANT_READ.
            self._unwritten.push(PyBytes_FromStringAndSize(start, min(n, WRITE_BYTES)), 0)
            start += WRITE_BYTES
            n -= WRITE_BYTES
        if not self._backlogged and self._unwritten.size > self._high_bytes():
            self._backlogged = True
            self.full()
        return 0

    cdef Py_ssize_t _high_bytes(self) except -1:
        if self._below is None:
            return FLOW_CONTROL_HIGH_WATER_SSL_WRITE * KIB
        return self._below.get_write_buffer_limits()[1]

    cdef bint _write_backlog(self) except -1:
        cdef iovec part
        while self._unwritten.count:
            self._unwritten.vector(&part, 1)
            if not self._engine.write(<const char *>part.iov_base, part.iov_len):
                return False
            self._send()
            if self._unwritten is None:
                return True    # pause_writing() ended it
            self._unwritten.advance(part.iov_len)
        self._unwritten = None
        if self._backlogged:
            self._backlogged = False
            self.drained()
        return True

    cdef int _send(self) except -1:
        cdef:
            const char *start = NULL
            Py_ssize_t n
        if self._engine is None:
            return 0
        n = self._engine.output(&start)
        if n == 0:
            return 0
        if self._stream is not None:
            return self._stream.write_bytes(None, start, n)
        self._below.write(PyBytes_FromStringAndSize(start, n))
        return 0

    # ---- flow control

    cdef Py_ssize_t unsent_bytes(self) except -1:
        cdef Py_ssize_t size = 0 if self._unwritten is None else self._unwritten.size
        if self._stream is not None:
            return size + self._stream.unsent_bytes()
        return size if self._below is None else size + self._below.get_write_buffer_size()

    cdef int full(self) except -1:
        self._full += 1
        return self._call_flow("pause_writing") if self._full == 1 else 0

    cdef int drained(self) except -1:
        self._full -= 1
        return self._call_flow("resume_writing") if self._full == 0 else 0

    cdef int _call_flow(self, str method) except -1:
        if not self._made or self._protocol is None:
            return 0
        try:
            self._inside(getattr(self._protocol, method), ())
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._report(exc, f"protocol.{method}() failed")
        return 0

    # ---- the end

    cdef bint ended(self) except -1:
        """The connection below is at its end, said goodbye or not."""
        self._ended = True
        if self._loop.get_debug():
            logger.debug("%r received EOF", self)
        if self._state == HANDSHAKE:
            self._handshake_failed(ConnectionResetError())
        elif self._state == WRAPPED:
            if self._paused or self._engine.has_more():
                return True    # until that was read
            self._call_eof_received()
            self._begin_shutdown()
            return True        # closed by that, once all is sent
        elif self._state == SHUTDOWN:
            self._shut()
        return False

    cdef int _call_eof_received(self) except -1:
        cdef object keep_open
        if self._told_end or not self._made or self._protocol is None:
            return 0
        self._told_end = True
        try:
            keep_open = self._inside(self._protocol.eof_received, ())
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as exc:
            return self._fatal(exc, "Error calling eof_received()")
        if keep_open:
            logger.warning("returning true from eof_received() has no effect when using ssl")
        return 0

    cdef int _begin_shutdown(self) except -1:
        if self._state != WRAPPED:
            return 0
        self._closing = True
        self._state = SHUTDOWN
        if self._paused:
            # The peer's goodbye is to be read.
            self._paused = False
            self._below.resume_reading()
        if not self._ended:
            self._timer = self._loop.call_later(self._shutdown_s, self._check_shutdown)
        self._shut_down()
        if self._engine is not None:
            self._engine.keep()
        return 0

    def _check_shutdown(self):
        if self._state == SHUTDOWN:
            self._end_below(TimeoutError("SSL shutdown timed out"))

    cdef int _shut_down(self) except -1:
        cdef bint done = self._ended
        try:
            if not done:
                self._discard()
                if self._unwritten is None or self._write_backlog():
                    done = self._engine.shutdown()
        except Exception as exc:
            self._send()
            self._cancel_timer()
            return self._fatal(exc, "Fatal error on transport")
        finally:
            self._send()
        return self._shut() if done else 0

    cdef int _discard(self) except -1:
        """What the peer sent before it heard of our end is in the way of its answer.

        OpenSSL takes it for an error (CPython's bpo-39951).
        """
        while self._engine.read(self._loop.shared.read(), READ_BYTES) > 0:
            pass
        self._send()
        if self._engine.failure is not None:
            raise self._engine.failure
        return 0

    cdef int _shut(self) except -1:
        """Both ends said so, or the peer is gone."""
        self._cancel_timer()
        self._call_eof_received()    # also after close(), as in asyncio
        self._loop.call_soon(self._below.close)
        return 0

    cdef int _end_below(self, object exc) except -1:
        if self._stream is not None:
            return self._stream.force_close(exc)
        if self._below is not None:
            # A transport of somebody else has the documented half at least.
            getattr(self._below, "_force_close", self._abort_below)(exc)
        return 0

    def _abort_below(self, exc):
        self._below.abort()

    cdef int lost(self, object exc) except -1:
        """The connection below is no more."""
        cdef object protocol = self._protocol
        self._cancel_timer()
        self._state = OVER
        self._closing = True
        self._unwritten = None
        self._lost_writes += 1
        self._wake_waiter(exc if exc is not None
                          else ConnectionAbortedError("the connection was closed in the handshake"))
        if self._made and protocol is not None:
            self._loop.schedule(protocol.connection_lost, (exc,),
                                copy_context() if self._context is None else self._context)
        # The SSLObject alone stays, to be asked.
        self._protocol = None
        self._above = None
        self._engine = None
        self._stream = None
        self._lower = None
        return 0

    cdef int _fatal(self, object exc, str message) except -1:
        self._closing = True
        self._state = OVER
        if self._stream is not None and isinstance(exc, SSLError):
            self._stream.flush()    # the alert that says why
        if isinstance(exc, OSError):
            if self._loop.get_debug():
                logger.debug("%r: %s", self, message, exc_info=exc)
        elif not isinstance(exc, asyncio.CancelledError):
            self._report(exc, message)
        return self._end_below(exc)

    cdef int _report(self, object exc, str message) except -1:
        self._loop.call_exception_handler({
            "message": message,
            "exception": exc,
            "transport": self,
            "protocol": self._protocol,
        })
        return 0

    # ---- calling the program

    cdef object _inside(self, object function, tuple args):
        """Call it in the connection's context, also from inside it."""
        if try_enter_context(self._context) == 0:
            try:
                return function(*args)
            finally:
                exit_context(self._context)
        PyErr_Clear()
        return function(*args)
