"""What all transports share: a life from connection_made to connection_lost, and flow control.

Source: CPython 3.13 asyncio.transports._FlowControlMixin, asyncio.selector_events
._SelectorTransport.
"""

import asyncio
import warnings
from asyncio.constants import LOG_THRESHOLD_FOR_CONNLOST_WRITES
from asyncio.log import logger

from eploop.core cimport LoopCore
from eploop.handles cimport call_in_with, call_inside
from eploop.poller cimport Watcher
from eploop.readers cimport Descriptor

cdef enum:
    DEFAULT_HIGH_BYTES = 65536


cdef class Transport(Watcher):
    """The common half of eploop's transports; `isinstance(t, asyncio.Transport)` holds."""

    @property
    def __class__(self):
        # A subclass of asyncio.Transport, which the sendfile fallback asks for by this name.
        return asyncio.transports._FlowControlMixin

    cdef int begin(self, LoopCore loop, object protocol, object context, object server) except -1:
        self._loop = loop
        self._protocol = protocol
        self._context = context
        self._server = server
        self._high_bytes = DEFAULT_HIGH_BYTES
        self._low_bytes = DEFAULT_HIGH_BYTES // 4
        loop.counters.transports += 1
        if server is not None:
            server._attach(self)
        return 0

    cdef int enqueue(self) except -1:
        if self._queued:
            return 0
        self._queued = True
        return self._loop.defer(self)

    cdef int report(self, object exc) except -1:
        self._loop.call_exception_handler({
            "message": f"Exception in {self!r}",
            "exception": exc,
            "transport": self,
            "protocol": self._protocol,
        })
        return 0

    # ---- the protocol's life

    cdef int call_connection_made(self) except -1:
        cdef object waiter = self._waiter
        self._made = True
        try:
            call_in_with(self._context, self._protocol.connection_made, self)
        except (SystemExit, KeyboardInterrupt):
            self.enqueue()    # for what the kernel may have reported already
            raise
        except BaseException as exc:
            # As in asyncio, where a handle reports it, the connection goes on.
            self._loop.call_exception_handler({
                "message": f"Exception in callback {self._protocol!r}.connection_made({self!r})",
                "exception": exc,
                "transport": self,
                "protocol": self._protocol,
            })
        finally:
            self._waiter = None
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        return 0

    cdef int fatal(self, object exc, str message) except -1:
        if isinstance(exc, OSError):
            if self._loop.get_debug():
                logger.debug("%r: %s", self, message, exc_info=exc)
        else:
            self._loop.call_exception_handler({
                "message": message,
                "exception": exc,
                "transport": self,
                "protocol": self._protocol,
            })
        return self.force_close(exc)

    cdef int force_close(self, object exc) except -1:
        """End the connection without sending what is unsent."""
        if self._lost or self.fd < 0:
            return 0
        self.drop_unsent()
        self._closing = True
        return self.finish(exc)

    cdef int finish(self, object exc) except -1:
        self._lost += 1
        self._loop.schedule(self._call_connection_lost, (exc,), self._context)
        return 0

    def _call_connection_lost(self, exc):
        cdef object server = self._server
        try:
            self._protocol.connection_lost(exc)
        finally:
            self.release()
            self._protocol = None
            self._server = None
            if server is not None:
                server._detach(self)

    def _force_close(self, exc):
        self.force_close(exc)

    def abort(self):
        """Close at once; what is unsent is dropped. connection_lost(None) follows."""
        self.force_close(None)

    def is_closing(self):
        """True once closing or closed."""
        return bool(self._closing)

    cdef Py_ssize_t unsent_bytes(self) noexcept:
        return 0

    cdef int drop_unsent(self) except -1:
        return 0

    cdef int release(self) except -1:
        return 0

    # ---- flow control

    def set_write_buffer_limits(self, high=None, low=None):
        """Set the marks, in bytes, at which the protocol is paused and resumed.

        Args:
            high: pause_writing() when more than this is unsent. Default: 64 KiB, or 4 * low.
            low: resume_writing() when no more than this is unsent. Default: high // 4.

        Raises:
            ValueError: Not high >= low >= 0.
        """
        if high is None:
            high = DEFAULT_HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_bytes = high
        self._low_bytes = low
        if self.fd >= 0:
            self.pause_protocol_if_full()

    def get_write_buffer_limits(self):
        """(low, high) in bytes."""
        return self._low_bytes, self._high_bytes

    def get_write_buffer_size(self):
        """Bytes written but not yet taken by the kernel."""
        return self.unsent_bytes()

    cdef int pause_protocol_if_full(self) except -1:
        if self._is_paused or self.unsent_bytes() <= self._high_bytes:
            return 0
        self._is_paused = True
        return self._call_flow("pause_writing")

    cdef int resume_protocol_if_drained(self) except -1:
        if not self._is_paused or self._lost or self.unsent_bytes() > self._low_bytes:
            return 0
        self._is_paused = False
        return self._call_flow("resume_writing")

    @property
    def _protocol_paused(self):
        return bool(self._is_paused)

    cdef int _call_flow(self, str method) except -1:
        try:
            # write() may be called from anywhere, and from the protocol's own callbacks.
            call_inside(self._context, getattr(self._protocol, method))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._loop.call_exception_handler({
                "message": f"protocol.{method}() failed",
                "exception": exc,
                "transport": self,
                "protocol": self._protocol,
            })
        return 0

    # ---- asking

    def get_protocol(self):
        return self._protocol

    def get_extra_info(self, name, default=None):
        """Information about the connection: see asyncio.BaseTransport.get_extra_info."""
        if self._extra is None:
            return default
        return self._extra.get(name, default)

    def _note_lost_write(self):
        if self._lost >= LOG_THRESHOLD_FOR_CONNLOST_WRITES:
            logger.warning("socket.send() raised exception.")
        self._lost += 1

    def __del__(self):
        if self.fd >= 0:
            warnings.warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
            self.release()


cdef int check_free(LoopCore loop, int fd) except -1:
    """Two transports of one socket would take each other's events, and close it twice.

    Raises:
        RuntimeError: A transport or a server owns `fd`.
    """
    cdef Watcher watcher = loop.poller.at(fd)
    if watcher is None or isinstance(watcher, Descriptor) or not loop.poller.holds(watcher):
        return 0
    raise RuntimeError(f"File descriptor {fd!r} is used by transport {watcher!r}")
