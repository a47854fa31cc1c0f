"""Signals: Python's handlers run promptly in an idle loop, and add_signal_handler.

While the loop runs in the main thread, signal.set_wakeup_fd names a pipe of ours, so that a signal
ends a blocked wait whichever thread it reached (an eventfd would refuse the one-byte write).
Python marks a signal as pending before it writes, and the loop runs pending Python handlers after
each wait. So a full pipe loses no signal. The bytes, which are signal numbers, matter only where a
program has put another Python handler in the place of ours: both are to be called.

Source: CPython 3.13 asyncio.unix_events._UnixSelectorEventLoop; signal(7), Modules/signalmodule.c.
"""

import errno
import inspect
import os
import signal
import threading

cimport cython
from libc.stdint cimport uint32_t

from eploop.core cimport LoopCore
from eploop.errors cimport raise_errno
from eploop.handles cimport Handle, copy_context, new_handle
from eploop.poller cimport Watcher
from eploop.syscalls cimport fd as descriptors
from eploop.syscalls.epoll cimport EPOLLET, EPOLLIN

cdef enum:
    DRAIN_BYTES = 4096

# The loop's signals whose pipe is the process's wake-up descriptor, or None. Python has one such
# descriptor per process.
cdef Signals installed = None


def _after_fork():
    if installed is not None:
        installed.after_fork()


os.register_at_fork(after_in_child=_after_fork)


@cython.final
cdef class Signals(Watcher):
    """The signal handlers of one loop, and the pipe that wakes it."""
    cdef:
        LoopCore _loop
        int _write_fd
        int _previous_fd        # the wake-up descriptor to put back
        dict _handlers          # signal number -> Handle

    def __init__(self, LoopCore loop):
        self._loop = loop
        self._write_fd = -1
        self._handlers = {}

    # ---- the wake-up pipe

    def enter(self):
        """The loop starts to run: wake it on signals, if this is the main thread."""
        global installed
        if threading.get_ident() != threading.main_thread().ident:
            return
        if self.fd < 0:
            self._open_pipe()
        self._previous_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        installed = self

    def leave(self):
        """The loop stopped: put back the wake-up descriptor that was there before."""
        global installed
        if installed is not self:
            return
        installed = None
        try:
            current_fd = signal.set_wakeup_fd(self._previous_fd)
        except (ValueError, OSError):
            # Its owner closed it meanwhile.
            current_fd = signal.set_wakeup_fd(-1)
        if current_fd not in (-1, self._write_fd):
            # A callback installed its own, to stay.
            signal.set_wakeup_fd(current_fd)

    cdef int _open_pipe(self) except -1:
        cdef int ends[2]
        cdef int rc = descriptors.pipe(ends)
        if rc < 0:
            raise_errno(rc, "pipe2")
        self.fd = ends[0]
        self._write_fd = ends[1]
        return self._loop.poller.add(self, EPOLLIN | EPOLLET)

    cdef int _close_pipe(self) except -1:
        if self.fd >= 0:
            self._loop.poller.remove(self)
            descriptors.close(self.fd)
            descriptors.close(self._write_fd)
            self.fd = self._write_fd = -1
        return 0

    cdef int after_fork(self) except -1:
        """In the child: the pipe is the parent's, whose loop would be woken by our signals."""
        global installed
        current_fd = signal.set_wakeup_fd(-1)
        if current_fd != self._write_fd:
            signal.set_wakeup_fd(current_fd)
        installed = None
        self._close_pipe()
        if self._loop._thread_id == threading.get_ident():
            # The child goes on in the callback that forked, and so does its loop.
            self.enter()
        return 0

    cdef int on_io(self, uint32_t events) except -1:
        cdef unsigned char caught[DRAIN_BYTES]
        cdef ssize_t i, n = DRAIN_BYTES
        while n == DRAIN_BYTES:
            n = descriptors.read(self.fd, caught, DRAIN_BYTES)
            for i in range(n):
                if caught[i] in self._handlers:
                    self._caught(caught[i])
        return 0

    cdef int _caught(self, int signum) except -1:
        if signal.getsignal(signum) != self._on_signal:
            self._on_signal(signum, None)
        return 0

    # ---- handlers

    def add(self, sig, callback, args):
        """As asyncio's loop.add_signal_handler."""
        if inspect.iscoroutine(callback) or inspect.iscoroutinefunction(callback):
            raise TypeError("coroutines cannot be used with add_signal_handler()")
        check_signal(sig)
        if self._loop is None:
            raise RuntimeError("Event loop is closed")
        if threading.get_ident() != threading.main_thread().ident:
            raise RuntimeError("signal handlers can only be added in the main thread")
        before = self._handlers.get(sig)
        self._handlers[sig] = new_handle(callback, args, self._loop, copy_context())
        try:
            signal.signal(sig, self._on_signal)
        except OSError as exc:
            self._restore(sig, before)
            if exc.errno == errno.EINVAL:
                raise RuntimeError(f"sig {sig} cannot be caught") from None
            raise
        # Restart what the signal interrupts: only the loop's own wait is meant to end.
        signal.siginterrupt(sig, False)

    cdef int _restore(self, object sig, object before) except -1:
        if before is None:
            del self._handlers[sig]
        else:
            self._handlers[sig] = before
        return 0

    def _on_signal(self, signum, frame):
        cdef Handle handle = self._handlers.get(signum)
        if handle is not None and not handle._cancelled:
            self._loop.call_soon_threadsafe(handle._callback, *handle._args,
                                            context=handle._context)

    def remove(self, sig):
        """As asyncio's loop.remove_signal_handler: True if there was a handler."""
        check_signal(sig)
        if sig not in self._handlers:
            return False
        del self._handlers[sig]
        signal.signal(
            sig, signal.default_int_handler if sig == signal.SIGINT else signal.SIG_DFL)
        return True

    def close(self):
        for sig in list(self._handlers):
            self.remove(sig)
        self._close_pipe()
        self._loop = None       # it refers to us; a closed loop shall not wait for the collector


def check_signal(sig):
    """Raise TypeError or ValueError unless `sig` is the number of a signal."""
    if not isinstance(sig, int):
        raise TypeError(f"sig must be an int, not {sig!r}")
    if sig not in signal.valid_signals():
        raise ValueError(f"invalid signal number {sig}")
