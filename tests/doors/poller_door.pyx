"""Shows the poller, its slots and generations to the tests."""

from libc.stdint cimport uint32_t

from eploop.poller cimport Poller, Watcher
from eploop.syscalls.epoll cimport EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLOUT

IN, OUT, ET, ONESHOT = EPOLLIN, EPOLLOUT, EPOLLET, EPOLLONESHOT


cdef class Probe(Watcher):
    """Notes the events it is given."""
    cdef readonly list seen

    def __init__(self, int fd):
        self.fd = fd
        self.seen = []

    cdef int on_io(self, uint32_t events) except -1:
        self.seen.append(events)
        return 0

    @property
    def is_registered(self):
        return self.interest != 0


cdef class Set:
    cdef Poller poller

    def __cinit__(self, mode="edge"):
        self.poller = Poller(mode)

    def add(self, Probe probe, uint32_t interest=EPOLLIN):
        self.poller.add(probe, interest)

    def modify(self, Probe probe, uint32_t interest):
        self.poller.modify(probe, interest)

    def suspend(self, Probe probe):
        self.poller.suspend(probe)

    def remove(self, Probe probe):
        self.poller.remove(probe)

    def at(self, int fd):
        return self.poller.at(fd)

    def watchers(self):
        return self.poller.watchers()

    def poll(self):
        self.poller.poll()

    def wait(self, double seconds):
        self.poller.lie_down()
        self.poller.wait(<long long>(seconds * 1e9), 0)

    def wait_without_pwait2(self, double seconds):
        self.poller._has_pwait2 = False
        self.wait(seconds)

    def wake(self):
        self.poller.wake()

    def close(self):
        self.poller.close()

    @property
    def epoll_fd(self):
        return self.poller._epfd

    @property
    def counters(self):
        return {"ctl": self.poller.ctl_calls, "polls": self.poller.polls,
                "events": self.poller.events, "written": self.poller.wakeups_written,
                "avoided": self.poller.wakeups_avoided}
