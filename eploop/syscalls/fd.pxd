# Descriptors as such: close, pipes.

from libc.errno cimport EINTR, errno
from posix.unistd cimport close as c_close, read as c_read

cdef extern from "<fcntl.h>" nogil:
    int O_CLOEXEC, O_NONBLOCK

cdef extern from "<unistd.h>" nogil:
    int c_pipe2 "pipe2"(int *fds, int flags)


cdef inline int close(int fd) noexcept nogil:
    """close(2): after EINTR or EIO the descriptor is gone, so it is never tried again."""
    return 0 if c_close(fd) == 0 else -errno


cdef inline int pipe(int *fds) noexcept nogil:
    return 0 if c_pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0 else -errno


cdef inline ssize_t read(int fd, void *buf, size_t n) noexcept nogil:
    cdef ssize_t r
    while True:
        r = c_read(fd, buf, n)
        if r >= 0:
            return r
        if errno != EINTR:
            return -errno
