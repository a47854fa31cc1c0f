"""What a pipe transport holds on to: the file object, and a place among the poller's watchers.

The file object owns the descriptor. A descriptor may be connected more than once (a terminal read
and written, standard output written by two): whoever comes second watches a duplicate, since the
poller has one place for each number.
"""

import os
import socket as socket_module
import stat

cimport cython
from libc.stdint cimport uint32_t

from eploop.core cimport LoopCore
from eploop.errors cimport raise_errno
from eploop.poller cimport Watcher
from eploop.syscalls cimport fd as descriptors


cdef PipeEnd end_of(object pipe):
    cdef PipeEnd end = PipeEnd.__new__(PipeEnd)
    mode = os.fstat(pipe.fileno()).st_mode
    if stat.S_ISFIFO(mode):
        end.kind = FIFO
    elif stat.S_ISSOCK(mode):
        end.kind = SOCKET
    elif stat.S_ISCHR(mode):
        end.kind = CHARACTER
    else:
        raise ValueError("Pipe transport is only for pipes, sockets and character devices, "
                         f"not for {pipe!r}")
    end.file = pipe
    end._duplicate = -1
    return end


@cython.final
cdef class PipeEnd:

    cdef int watch(self, LoopCore loop, Watcher watcher, uint32_t interest) except -1:
        """Put `watcher`, whose descriptor is the file's, under the poller's eyes."""
        if loop.poller.at(watcher.fd) is not None:
            self._duplicate = descriptors.duplicate(watcher.fd)
            if self._duplicate < 0:
                raise_errno(self._duplicate, "fcntl")
            watcher.fd = self._duplicate
        try:
            loop.poller.add(watcher, interest)
            self.watched = True
        except PermissionError:
            # epoll_ctl(2): a device without a poll operation, which is always ready.
            if self.kind != CHARACTER:
                raise
            self.never_blocks = True
        return 0

    cdef int give_back(self, LoopCore loop, Watcher watcher) except -1:
        # The place is another's if the file was closed behind our back and its number reused.
        if self.watched and loop.poller.at(watcher.fd) is watcher:
            loop.poller.remove(watcher)
        watcher.fd = -1
        if self._duplicate >= 0:
            descriptors.close(self._duplicate)
            self._duplicate = -1
        return 0

    cdef int let_go(self, LoopCore loop, Watcher watcher) except -1:
        self.give_back(loop, watcher)
        try:
            self.file.close()
        except Exception as exc:
            # A buffered file that cannot flush, a number closed twice.
            loop.call_exception_handler({
                "message": f"Exception in {self.file!r}.close()",
                "exception": exc,
                "transport": watcher,
            })
        return 0

    cdef bint keeps_packets(self) except -1:
        """Is each write one packet, so that several must not be joined?"""
        cdef int fd = self.file.fileno()
        if self.kind == FIFO:
            return descriptors.flags(fd) & descriptors.O_DIRECT != 0
        if self.kind == SOCKET:
            probe = socket_module.socket(fileno=fd)
            try:
                return probe.type != socket_module.SOCK_STREAM
            finally:
                probe.detach()
        return False
