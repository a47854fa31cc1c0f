"""A descriptor that the user watches: add_reader, add_writer, and the waits of sock_*."""

import socket
import weakref

cimport cython
from libc.stdint cimport uint32_t

from eploop.handles cimport Handle, Runnable
from eploop.poller cimport Poller, Watcher
from eploop.ready cimport ReadyQueue
from eploop.syscalls.epoll cimport EPOLLET, EPOLLIN, EPOLLOUT


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


cdef Descriptor descriptor_of_closed(Poller poller, object file):
    """The descriptor that `file` had when it was watched; None if it was not.

    A file object that was closed does not know its number any more.
    """
    cdef Watcher watcher
    for watcher in poller.watchers():
        if isinstance(watcher, Descriptor) and (<Descriptor>watcher)._file is file:
            (<Descriptor>watcher)._is_gone = True
            return <Descriptor>watcher
    return None


@cython.final
cdef class Descriptor(Watcher):

    cdef int on_io(self, uint32_t events) except -1:
        cdef bint expected = False
        cdef bint woken = False
        # As selectors.EpollSelector: errors and hang-ups are both directions' business.
        if events & ~EPOLLOUT:
            if self.reader is not None:
                self._ready.push(self.reader)
                expected = True
            if self._read_waits is not None:
                self._wake(self._read_waits)
                self._read_waits = None
                woken = True
        if events & ~EPOLLIN:
            if self.writer is not None:
                self._ready.push(self.writer)
                expected = True
            if self._write_waits is not None:
                self._wake(self._write_waits)
                self._write_waits = None
                woken = True
        if woken or not expected:
            self._end_surplus(woken)
        return 0

    cdef int _end_surplus(self, bint woken) except -1:
        """An event came that is not wanted, or ended a wait: do not let it come again for ever."""
        if not self.interest & EPOLLET:
            # A handler has it level-triggered, and what only a wait wanted is in it still.
            try:
                return self._update(False)
            except OSError:
                pass    # closed, but a duplicate of it lives on
        elif (woken or self._read_waits is not None or self._write_waits is not None
                or not self._is_ownerless()):
            return 0
        # The socket was closed, but a duplicate of it lives on, maybe in another process.
        return self._poller.remove(self)

    cdef int _wake(self, list waits) except -1:
        cdef Runnable waiter
        for waiter in waits:
            self._ready.push(waiter)
        return 0

    cdef int _update(self, bint again) except -1:
        """Tell the kernel what is wanted now, if it does not know, or `again` if it may not."""
        cdef:
            uint32_t level = 0
            uint32_t wanted = 0
        if self.reader is not None:
            level |= EPOLLIN
        if self.writer is not None:
            level |= EPOLLOUT
        wanted = level
        if self._read_waits is not None:
            wanted |= EPOLLIN
        if self._write_waits is not None:
            wanted |= EPOLLOUT
        if self._is_gone and level and wanted == level:
            return 0    # the kernel has forgotten it
        if not level and wanted:
            # Further edges than the wanted ones wake nobody, and are not worth a call.
            wanted |= EPOLLET | (self.interest & EPOLLIN)
        if self._poller.at(self.fd) is not self:
            return self._poller.add(self, wanted) if wanted else 0
        if wanted == self.interest and not again:
            return 0
        if wanted:
            return self._poller.modify(self, wanted)
        if self.interest & EPOLLET:
            return 0    # nobody waits now; likely somebody will
        return self._poller.remove(self)

    cdef bint set_reader(self, Handle handle, object file) except -1:
        cdef Handle old = self.reader
        self.reader = handle
        self._note_file(handle, file)
        try:
            # A second handler may be for a file that took over the number of a closed one.
            self._update(old is not None and handle is not None)
        except BaseException:
            self.reader = None
            self._note_file(None, None)
            raise
        if old is not None:
            old._cancel()
        return old is not None

    cdef bint set_writer(self, Handle handle, object file) except -1:
        cdef Handle old = self.writer
        self.writer = handle
        self._note_file(handle, file)
        try:
            self._update(old is not None and handle is not None)
        except BaseException:
            self.writer = None
            self._note_file(None, None)
            raise
        if old is not None:
            old._cancel()
        return old is not None

    cdef int _note_file(self, Handle handle, object file) except -1:
        if handle is not None:
            self._is_gone = False
            if not isinstance(file, int):
                self._file = file
        elif self.reader is None and self.writer is None:
            self._file = None
        return 0

    cdef int await_readable(self, Runnable waiter, object sock) except -1:
        if self._read_waits is None:
            self._read_waits = []
        self._read_waits.append(waiter)
        return self._begin(waiter, sock)

    cdef int await_writable(self, Runnable waiter, object sock) except -1:
        if self._write_waits is None:
            self._write_waits = []
        self._write_waits.append(waiter)
        return self._begin(waiter, sock)

    cdef int _begin(self, Runnable waiter, object sock) except -1:
        try:
            if self._is_owner(sock):
                return self._update(False)
            # MOD looks at the descriptor again: ENOENT tells that it names another file now.
            self._owner = weakref.ref(sock) if issubclass(type(sock), socket.socket) else None
            return self._update(True)
        except BaseException:
            self.forget(waiter)
            raise

    cdef bint _is_owner(self, object sock) except -1:
        return self._owner is not None and self._owner() is sock

    cdef bint _is_ownerless(self) except -1:
        """True if what waited here last is gone."""
        if self._owner is None:
            return True
        sock = self._owner()
        return sock is None or sock.fileno() != self.fd

    cdef int forget(self, Runnable waiter) except -1:
        if self._read_waits is not None and waiter in self._read_waits:
            self._read_waits.remove(waiter)
            self._read_waits = self._read_waits or None
        if self._write_waits is not None and waiter in self._write_waits:
            self._write_waits.remove(waiter)
            self._write_waits = self._write_waits or None
        return 0
