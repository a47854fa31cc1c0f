# The epoll set of one loop: descriptors, the watchers behind them, and the eventfd that wakes it.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from eploop.handles cimport Runnable
from eploop.syscalls.epoll cimport epoll_event


cdef enum Mode:
    EDGE
    ONESHOT
    LEVEL


cdef class Watcher(Runnable):
    """Something with a descriptor that the poller may call."""
    cdef:
        int fd                  # -1 once closed
        uint32_t generation     # set by Poller.add; tells a reused number from the old one
        uint32_t interest       # what the kernel was told last; 0 when not in the set
    # The kernel reported `events`. Note it, queue what follows; user code does not run here.
    cdef int on_io(self, uint32_t events) except -1
    # Send what was coalesced during this turn.
    cdef int flush(self) except -1


cdef class Poller:
    cdef:
        readonly int mode
        # The kernel's side.
        int _epfd
        epoll_event *_events
        bint _has_pwait2
        int _forks              # how many times the process had been forked when the set was made
        # The watchers, by descriptor; None where there is none.
        list _slots
        uint32_t _generation
        # Waking a blocked wait from another thread.
        int _eventfd
        int _asleep             # 1 while a wait blocks, or is about to
        # Counters.
        readonly uint64_t polls
        readonly uint64_t events
        readonly uint64_t ctl_calls
        readonly uint64_t wakeups_written
        readonly uint64_t wakeups_avoided
    cdef int add(self, Watcher watcher, uint32_t interest) except -1
    cdef int modify(self, Watcher watcher, uint32_t interest) except -1    # 0: as suspend
    cdef int suspend(self, Watcher watcher) except -1    # out of the kernel's set, still ours
    cdef int remove(self, Watcher watcher) except -1
    cdef Watcher at(self, int fd)                        # None if there is none
    cdef list watchers(self)                             # all of them
    cdef bint holds(self, Watcher watcher) except -1     # its number still names its file
    cdef int poll(self) except -1                        # what is ready now
    cdef int lie_down(self) noexcept                     # from here on, posters must wake us
    cdef int get_up(self) noexcept
    cdef int wait(self, int64_t timeout_ns, int64_t spin_ns) except -1    # < 0: no limit
    cdef int wake(self) except -1                        # from any thread
    cdef int close(self) except -1
    cdef int _open(self) except -1
    cdef int _close_descriptors(self) noexcept
    cdef int _renew(self) except -1
    cdef int _check_fork(self) except -1
    cdef int _ctl(self, int op, int fd, uint32_t events, uint64_t key) except -1
    cdef int _number(self, Watcher watcher) noexcept
    cdef int _resume(self, Watcher watcher, uint32_t interest) except -1
    cdef int _dispatch(self, int n) except -1
    cdef bint _drop_stale(self, int fd) except -1
