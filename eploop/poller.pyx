"""The epoll set of one loop: descriptors, the watchers behind them, and the eventfd that wakes it.

epoll(7) keys an entry on (descriptor number, open file). Three consequences are handled here:

* A number may be reused. Each entry carries generation << 32 | descriptor, and an event whose
  generation is not the watcher's is stale.
* A closed descriptor whose open file lives on in a duplicate can no longer be removed, yet goes on
  reporting. The set is then made anew without it.
* A forked child shares the set with its parent, and whatever it removes is removed for both. The
  child never touches it, and makes a set of its own at the first use.

The eventfd is registered edge-triggered and never read: each write is an edge of its own.
"""

import os

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport EBADF, EEXIST, EINTR, ENOENT, ENOSYS, EPERM
from libc.stdint cimport int64_t, uint32_t, uint64_t

from eploop.errors cimport raise_errno
from eploop.handles cimport Runnable
from eploop.syscalls cimport atomic, clock, epoll, fd as descriptors
from eploop.syscalls.epoll cimport epoll_event

cdef enum:
    EVENTS = 1024           # taken from the kernel at once: 12 KiB, and more is no faster

cdef uint64_t WAKE_KEY = ~<uint64_t>0

# Counts the forks that led to this process. Not a loop's state, the process's.
cdef int forks = 0


def _count_fork():
    global forks
    forks += 1


os.register_at_fork(after_in_child=_count_fork)


cdef class Watcher(Runnable):

    def __cinit__(self):
        self.fd = -1

    cdef int on_io(self, uint32_t events) except -1:
        return 0

    cdef int flush(self) except -1:
        return 0


@cython.final
cdef class Poller:

    def __cinit__(self, str mode):
        self.mode = {"edge": EDGE, "oneshot": ONESHOT, "level": LEVEL}[mode]
        self._epfd = self._eventfd = -1
        self._has_pwait2 = True
        self._slots = []
        self._events = <epoll_event *>PyMem_Malloc(EVENTS * sizeof(epoll_event))
        if self._events is NULL:
            raise MemoryError
        self._open()

    def __dealloc__(self):
        self._close_descriptors()
        PyMem_Free(self._events)

    cdef int _open(self) except -1:
        self._forks = forks
        self._epfd = epoll.create()
        if self._epfd < 0:
            raise_errno(self._epfd, "epoll_create1")
        self._eventfd = epoll.eventfd()
        if self._eventfd < 0:
            raise_errno(self._eventfd, "eventfd")
        return self._ctl(epoll.EPOLL_CTL_ADD, self._eventfd, epoll.EPOLLIN | epoll.EPOLLET,
                         WAKE_KEY)

    cdef int _close_descriptors(self) noexcept:
        # Our own copies: closing them in a forked child leaves the parent's set as it is.
        if self._eventfd >= 0:
            descriptors.close(self._eventfd)
        if self._epfd >= 0:
            descriptors.close(self._epfd)
        self._epfd = self._eventfd = -1
        return 0

    cdef int close(self) except -1:
        self._close_descriptors()
        self._slots = []
        return 0

    cdef int _renew(self) except -1:
        """A new set with every watcher in it: after a fork, or to lose an entry nobody owns."""
        cdef Watcher watcher
        self._close_descriptors()
        self._open()
        for watcher in self._slots:
            if watcher is not None and watcher.interest:
                # EBADF, EPERM: its owner closed it behind our back; the slot is only a memory.
                epoll.ctl(self._epfd, epoll.EPOLL_CTL_ADD, watcher.fd, watcher.interest,
                          key_of(watcher))
        return 0

    cdef int _check_fork(self) except -1:
        if self._forks != forks and self._epfd >= 0:
            self._renew()
        return 0

    cdef int _ctl(self, int op, int fd, uint32_t events, uint64_t key) except -1:
        cdef int rc = epoll.ctl(self._epfd, op, fd, events, key)
        self.ctl_calls += 1
        if rc < 0:
            raise_errno(rc, "epoll_ctl")
        return 0

    # ---- watchers

    cdef Watcher at(self, int fd):
        if 0 <= fd < len(self._slots):
            return <Watcher>self._slots[fd]
        return None

    cdef list watchers(self):
        return [watcher for watcher in self._slots if watcher is not None]

    cdef bint holds(self, Watcher watcher) except -1:
        """True unless the owner closed the descriptor of `watcher` without telling us."""
        self._check_fork()
        if not watcher.interest:
            return True     # suspended: the kernel cannot be asked
        self.ctl_calls += 1
        return epoll.ctl(self._epfd, epoll.EPOLL_CTL_MOD, watcher.fd, watcher.interest,
                         key_of(watcher)) == 0

    cdef int add(self, Watcher watcher, uint32_t interest) except -1:
        cdef:
            int fd = watcher.fd
            Watcher before = self.at(fd)
            # What waited for this very socket may have left its entry: connecting does.
            int operation = (epoll.EPOLL_CTL_MOD if before is not None and before.interest
                             else epoll.EPOLL_CTL_ADD)
            int rc
        self._check_fork()
        self._number(watcher)
        rc = epoll.ctl(self._epfd, operation, fd, interest, key_of(watcher))
        self.ctl_calls += 1
        if rc == -EEXIST:
            self._ctl(epoll.EPOLL_CTL_MOD, fd, interest, key_of(watcher))
        elif rc == -ENOENT:     # or of another one, that had the same number
            self._ctl(epoll.EPOLL_CTL_ADD, fd, interest, key_of(watcher))
        elif rc < 0:
            raise_errno(rc, "epoll_ctl")
        if fd >= len(self._slots):
            self._slots.extend([None] * (fd + 1 - len(self._slots)))
        self._slots[fd] = watcher
        watcher.interest = interest
        return 0

    cdef int _number(self, Watcher watcher) noexcept:
        self._generation += 1
        watcher.generation = self._generation
        return 0

    cdef int modify(self, Watcher watcher, uint32_t interest) except -1:
        cdef int rc
        self._check_fork()
        if not interest:
            return self.suspend(watcher)
        if not watcher.interest:
            return self._resume(watcher, interest)
        rc = epoll.ctl(self._epfd, epoll.EPOLL_CTL_MOD, watcher.fd, interest, key_of(watcher))
        self.ctl_calls += 1
        if rc < 0:
            # The owner closed the descriptor: it has no entry, or its number names another file.
            # The old one may live on in a duplicate, and its events must not pass for ours.
            watcher.interest = 0
            self._number(watcher)
            if rc == -ENOENT:
                return self._resume(watcher, interest)
            raise_errno(rc, "epoll_ctl")
        watcher.interest = interest
        return 0

    cdef int _resume(self, Watcher watcher, uint32_t interest) except -1:
        self._ctl(epoll.EPOLL_CTL_ADD, watcher.fd, interest, key_of(watcher))
        watcher.interest = interest
        return 0

    cdef int suspend(self, Watcher watcher) except -1:
        self._check_fork()
        if watcher.interest:
            if epoll.ctl(self._epfd, epoll.EPOLL_CTL_DEL, watcher.fd, 0, 0) < 0:
                self._number(watcher)    # as in modify
            self.ctl_calls += 1
            watcher.interest = 0
        return 0

    cdef int remove(self, Watcher watcher) except -1:
        """Must come before the descriptor is closed."""
        if self._epfd < 0:
            return 0
        # An error means that the entry is gone already, with the file it belonged to.
        self.suspend(watcher)
        if self.at(watcher.fd) is watcher:
            self._slots[watcher.fd] = None
        return 0

    # ---- waiting

    cdef int poll(self) except -1:
        self._check_fork()
        return self._dispatch(epoll.poll(self._epfd, self._events, EVENTS))

    cdef int lie_down(self) noexcept:
        atomic.store_int(&self._asleep, 1, atomic.SEQ_CST)
        return 0

    cdef int get_up(self) noexcept:
        atomic.store_int(&self._asleep, 0, atomic.SEQ_CST)
        return 0

    cdef int wait(self, int64_t timeout_ns, int64_t spin_ns) except -1:
        cdef:
            int n = 0
            int64_t until
        self._check_fork()
        with nogil:
            if spin_ns > 0:
                if timeout_ns >= 0:
                    spin_ns = min(spin_ns, timeout_ns)
                    timeout_ns -= spin_ns
                until = clock.monotonic_ns() + spin_ns
                while n == 0 and clock.monotonic_ns() < until:
                    n = epoll.poll(self._epfd, self._events, EVENTS)
            if n == 0:
                if self._has_pwait2:
                    n = epoll.wait(self._epfd, self._events, EVENTS, timeout_ns)
                else:
                    n = epoll.wait_ms(self._epfd, self._events, EVENTS, timeout_ns)
        self.get_up()
        if self._has_pwait2 and (n == -ENOSYS or n == -EPERM):
            # Linux before 5.11, or a seccomp filter. The next wait takes the other way.
            self._has_pwait2 = False
            return 0
        return self._dispatch(n)

    cdef int _dispatch(self, int n) except -1:
        cdef:
            int i
            uint64_t key
            Watcher watcher
        self.polls += 1
        if n < 0:
            if n == -EINTR:
                return 0
            raise_errno(n, "epoll_wait")
        self.events += n
        for i in range(n):
            key = self._events[i].data.u64
            if key == WAKE_KEY:
                continue
            watcher = self.at(<int>(key & 0xFFFFFFFF))
            if watcher is None or watcher.generation != <uint32_t>(key >> 32):
                if self._drop_stale(<int>(key & 0xFFFFFFFF)):
                    return 0    # the new set reports everything again
                continue
            try:
                watcher.on_io(self._events[i].events)
            except OSError as exc:
                # Its descriptor was closed behind our back. The others have their events still.
                watcher.report(exc)
        return 0

    cdef bint _drop_stale(self, int fd) except -1:
        """Lose an entry that no watcher owns; true if that took a new set."""
        if self.at(fd) is None:
            self.ctl_calls += 1
            if epoll.ctl(self._epfd, epoll.EPOLL_CTL_DEL, fd, 0, 0) == 0:
                return False
        self._renew()
        return True

    cdef int wake(self) except -1:
        cdef int rc
        if atomic.exchange_int(&self._asleep, 0, atomic.SEQ_CST) == 0:
            self.wakeups_avoided += 1
            return 0
        self.wakeups_written += 1
        rc = epoll.eventfd_add(self._eventfd)
        if rc < 0 and rc != -EBADF:
            raise_errno(rc, "write")
        return 0


cdef inline uint64_t key_of(Watcher watcher) noexcept:
    return <uint64_t>watcher.generation << 32 | <uint32_t>watcher.fd
