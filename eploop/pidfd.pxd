# The end of a child process, seen through a pidfd.

from libc.stdint cimport uint32_t

from eploop.core cimport LoopCore
from eploop.poller cimport Watcher


cdef class PidfdWatch(Watcher):
    cdef:
        LoopCore _loop
        int _pid
        object _on_exit         # called once with the return code, None if somebody else took it
        bint _queued
    cdef int _let_go(self) except -1
