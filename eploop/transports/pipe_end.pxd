# What a pipe transport holds on to: the file object, and a place among the poller's watchers.

from libc.stdint cimport uint32_t

from eploop.core cimport LoopCore
from eploop.poller cimport Watcher


cdef enum Kind:
    FIFO
    SOCKET
    CHARACTER


cdef class PipeEnd:
    """The file object that owns a descriptor, and how to be told about that descriptor."""
    cdef:
        object file
        Kind kind
        int _duplicate              # watched in place of the file's own number, or -1
        bint watched                # has its place among the poller's watchers
        bint never_blocks           # a device that cannot be polled, such as /dev/null
    cdef int watch(self, LoopCore loop, Watcher watcher, uint32_t interest) except -1
    cdef int give_back(self, LoopCore loop, Watcher watcher) except -1  # the caller's again
    cdef int let_go(self, LoopCore loop, Watcher watcher) except -1     # and close the file
    cdef bint keeps_packets(self) except -1


cdef PipeEnd end_of(object pipe)
