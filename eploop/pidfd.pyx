"""The end of a child process, seen through a pidfd: no thread, no SIGCHLD, from any thread's loop.

A pidfd reports IN once the process has ended. The child is reaped and the descriptor closed in one
step: from then on level and edge triggers alike would report IN and HUP again, and the number of
the process may name another one.

Source: pidfd_open(2), pidfd_send_signal(2), waitid(2).
"""

cimport cython
from libc.errno cimport ESRCH
from libc.stdint cimport uint32_t

from eploop.core cimport LoopCore
from eploop.errors cimport raise_errno
from eploop.poller cimport Watcher
from eploop.syscalls cimport fd as descriptors, proc
from eploop.syscalls.epoll cimport EPOLLIN, EPOLLONESHOT

# A debugger that traces the child sees its end first; until it lets go there is nothing to reap.
RETRY_S = 0.02


@cython.final
cdef class PidfdWatch(Watcher):
    """Waits for the end of the child `pid` and reaps it.

    Args:
        on_exit: Called once, in a turn of the loop, with the return code; with None if somebody
            else has reaped the child.

    Raises:
        OSError: No pidfd to be had: ENOSYS before Linux 5.3, EPERM from a seccomp filter, ESRCH if
            the child is reaped already, EMFILE, ... The child is as it was.
    """

    def __init__(self, LoopCore loop, int pid, on_exit):
        cdef int fd = proc.pidfd_open(pid)
        if fd < 0:
            raise_errno(fd, "pidfd_open")
        self.fd = fd
        self._loop = loop
        self._pid = pid
        self._on_exit = on_exit
        try:
            loop.poller.add(self, EPOLLIN | EPOLLONESHOT)
        except BaseException:
            self.fd = -1
            descriptors.close(fd)
            raise

    def __dealloc__(self):
        # The loop was closed before the child ended.
        if self.fd >= 0:
            descriptors.close(self.fd)

    cdef int on_io(self, uint32_t events) except -1:
        if not self._queued:
            self._queued = True
            self._loop.defer(self)
        return 0

    cdef int run(self) except -1:
        cdef:
            int returncode = 0
            int rc
            object on_exit = self._on_exit
        self._queued = False
        if self.fd < 0:
            return 0
        rc = proc.wait_exit(self.fd, self._pid, 0, &returncode)
        if rc == 0:
            self._loop.call_later(RETRY_S, self._look_again)
            return 0
        self._let_go()
        # ECHILD: somebody else reaped it.
        on_exit(returncode if rc > 0 else None)
        return 0

    def _look_again(self):
        self.run()

    cdef int report(self, object exc) except -1:
        self._loop.call_exception_handler({
            "message": f"Exception in {self!r}",
            "exception": exc,
        })
        return 0

    cdef int _let_go(self) except -1:
        cdef int fd = self.fd
        self._loop.poller.remove(self)
        self.fd = -1
        self._on_exit = None
        descriptors.close(fd)
        return 0

    def is_alive(self):
        """False once the child has ended, even if on_exit was not called yet."""
        cdef int returncode = 0
        return self.fd >= 0 and proc.wait_exit(self.fd, self._pid, proc.WNOWAIT, &returncode) == 0

    def send_signal(self, int sig):
        """Signal the child, and never another process that got its number.

        Raises:
            ProcessLookupError: The child has ended and was reaped.
        """
        cdef int rc = -ESRCH
        if self.fd >= 0:
            rc = proc.send_signal(self.fd, sig)
        if rc < 0:
            raise_errno(rc, "pidfd_send_signal")

    def __repr__(self):
        return f"<PidfdWatch pid={self._pid} {'ended' if self.fd < 0 else f'fd={self.fd}'}>"
