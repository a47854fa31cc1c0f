# Descriptors as such: close, duplicates, pipes, reading and writing.

from libc.errno cimport EINTR, errno
from posix.unistd cimport close as c_close, read as c_read, write as c_write

from eploop.syscalls.sock cimport iovec

cdef extern from "<fcntl.h>" nogil:
    int O_CLOEXEC, O_NONBLOCK
    int F_DUPFD_CLOEXEC, F_GETFL
    int c_fcntl "fcntl"(int fd, int what, ...)

cdef extern from "<unistd.h>" nogil:
    int c_pipe2 "pipe2"(int *fds, int flags)

cdef extern from "<limits.h>" nogil:
    int PIPE_BUF

cdef extern from "<sys/ioctl.h>" nogil:
    int FIONREAD, TIOCGPTN
    int c_ioctl "ioctl"(int fd, unsigned long what, void *argument)

cdef extern from "<sys/uio.h>" nogil:
    ssize_t c_writev "writev"(int fd, const iovec *parts, int count)

cdef extern from *:
    # The headers hide it without _GNU_SOURCE, and its value depends on the machine.
    """
    #include <fcntl.h>
    #ifndef O_DIRECT
    #define O_DIRECT __O_DIRECT
    #endif
    """
    int O_DIRECT


cdef inline int close(int fd) noexcept nogil:
    """close(2): after EINTR or EIO the descriptor is gone, so it is never tried again."""
    return 0 if c_close(fd) == 0 else -errno


cdef inline int duplicate(int fd) noexcept nogil:
    """Another number for the same open file, close-on-exec."""
    cdef int r = c_fcntl(fd, F_DUPFD_CLOEXEC, 0)
    return r if r >= 0 else -errno


cdef inline int flags(int fd) noexcept nogil:
    """The open file's O_* flags."""
    cdef int r = c_fcntl(fd, F_GETFL)
    return r if r >= 0 else -errno


cdef inline int unread(int fd) noexcept nogil:
    """Bytes that wait to be read."""
    cdef int n = 0
    return n if c_ioctl(fd, FIONREAD, &n) == 0 else -errno


cdef inline bint is_pty_master(int fd) noexcept nogil:
    cdef unsigned int number
    return c_ioctl(fd, TIOCGPTN, &number) == 0


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


cdef inline ssize_t write(int fd, const void *buf, size_t n) noexcept nogil:
    cdef ssize_t r
    while True:
        r = c_write(fd, buf, n)
        if r >= 0:
            return r
        if errno != EINTR:
            return -errno


cdef inline ssize_t write_vector(int fd, const iovec *parts, int count) noexcept nogil:
    """writev(2) of `count` parts, IOV_MAX (1024) at most."""
    cdef ssize_t r
    while True:
        r = c_writev(fd, parts, count)
        if r >= 0:
            return r
        if errno != EINTR:
            return -errno
