"""A descriptor that the user watches: add_reader, add_writer, and the waits of sock_*."""

cimport cython
from libc.stdint cimport uint32_t

from eploop.handles cimport Handle, Runnable
from eploop.poller cimport Poller, Watcher
from eploop.ready cimport ReadyQueue
from eploop.syscalls.epoll cimport EPOLLIN, EPOLLONESHOT, EPOLLOUT


cdef Descriptor descriptor_at(Poller poller, ReadyQueue ready, int fd):
    """The descriptor in slot `fd`, made if there is none.

    Raises:
        RuntimeError: A transport or a server owns it.
    """
    cdef Watcher watcher = poller.at(fd)
    cdef Descriptor descriptor
    if watcher is not None:
        if not isinstance(watcher, Descriptor):
            raise RuntimeError(f"File descriptor {fd!r} is used by transport {watcher!r}")
        return <Descriptor>watcher
    descriptor = Descriptor.__new__(Descriptor)
    descriptor.fd = fd
    descriptor._poller = poller
    descriptor._ready = ready
    return descriptor


@cython.final
cdef class Descriptor(Watcher):

    cdef int on_io(self, uint32_t events) except -1:
        if self.interest & EPOLLONESHOT:
            self._armed = False
        # As selectors.EpollSelector: errors and hang-ups are both directions' business.
        if events & ~EPOLLOUT:
            if self.reader is not None:
                self._ready.push(self.reader)
            if self._read_waits is not None:
                self._wake(self._read_waits)
                self._read_waits = None
        if events & ~EPOLLIN:
            if self.writer is not None:
                self._ready.push(self.writer)
            if self._write_waits is not None:
                self._wake(self._write_waits)
                self._write_waits = None
        return self._update()

    cdef int _wake(self, list waits) except -1:
        cdef Runnable waiter
        for waiter in waits:
            self._ready.push(waiter)
        return 0

    cdef int _update(self) except -1:
        """Tell the kernel what is wanted now, if it does not know."""
        cdef uint32_t level = 0
        cdef uint32_t once = 0
        if self.reader is not None:
            level |= EPOLLIN
        if self.writer is not None:
            level |= EPOLLOUT
        if self._read_waits is not None:
            once |= EPOLLIN
        if self._write_waits is not None:
            once |= EPOLLOUT
        if level:
            return self._apply(level | once, False)
        if once:
            return self._apply(once | EPOLLONESHOT, not self._armed)
        # A fired one-shot entry is silent, and the next wait is again one epoll_ctl.
        if self.interest and (self._armed or not self.interest & EPOLLONESHOT):
            self._poller.remove(self)
        return 0

    cdef int _apply(self, uint32_t wanted, bint again) except -1:
        cdef Watcher owner = self._poller.at(self.fd)
        if owner is not self:
            self._poller.add(self, wanted)
        elif wanted != self.interest or again:
            self._poller.modify(self, wanted)
        self._armed = True
        return 0

    cdef bint set_reader(self, Handle handle) except -1:
        cdef Handle old = self.reader
        self.reader = handle
        try:
            self._update()
        except BaseException:
            self.reader = None
            raise
        if old is not None:
            old._cancel()
        return old is not None

    cdef bint set_writer(self, Handle handle) except -1:
        cdef Handle old = self.writer
        self.writer = handle
        try:
            self._update()
        except BaseException:
            self.writer = None
            raise
        if old is not None:
            old._cancel()
        return old is not None

    cdef int await_readable(self, Runnable waiter) except -1:
        if self._read_waits is None:
            self._read_waits = []
        self._read_waits.append(waiter)
        return self._begin(waiter)

    cdef int await_writable(self, Runnable waiter) except -1:
        if self._write_waits is None:
            self._write_waits = []
        self._write_waits.append(waiter)
        return self._begin(waiter)

    cdef int _begin(self, Runnable waiter) except -1:
        try:
            # One MOD even if nothing changed: it looks at the descriptor again, and ENOENT tells
            # that the socket was closed and its number names another one now.
            self._armed = False
            return self._update()
        except BaseException:
            self.forget(waiter)
            raise

    cdef int forget(self, Runnable waiter) except -1:
        if self._read_waits is not None and waiter in self._read_waits:
            self._read_waits.remove(waiter)
            self._read_waits = self._read_waits or None
        if self._write_waits is not None and waiter in self._write_waits:
            self._write_waits.remove(waiter)
            self._write_waits = self._write_waits or None
        return 0
