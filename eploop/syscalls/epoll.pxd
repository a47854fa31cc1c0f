# epoll(7) and eventfd(2).

from libc.errno cimport EAGAIN, EINTR, ENOSYS, EPERM, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.time cimport timespec
from posix.unistd cimport read as c_read, write as c_write

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    # The header packs the structure on x86-64 only; its own type is right everywhere.
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int c_epoll_create1 "epoll_create1"(int flags)
    int c_epoll_ctl "epoll_ctl"(int epfd, int op, int fd, epoll_event *event)
    int c_epoll_wait "epoll_wait"(int epfd, epoll_event *events, int maxevents, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    uint32_t EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLPRI, EPOLLERR, EPOLLHUP
    uint32_t EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE

cdef extern from "<sys/eventfd.h>" nogil:
    int c_eventfd "eventfd"(unsigned int initval, int flags)
    int EFD_CLOEXEC, EFD_NONBLOCK

cdef extern from *:
    """
    #include <errno.h>
    #include <time.h>
    #include <unistd.h>
    #include <sys/epoll.h>
    #include <sys/syscall.h>
    /* By number: C libraries older than the call (glibc < 2.35) have no wrapper for it. */
    #ifndef SYS_epoll_pwait2
    #define SYS_epoll_pwait2 441
    #endif
    static inline int eploop_pwait2(int epfd, struct epoll_event *events, int maxevents,
                                    const struct timespec *timeout) {
        return (int)syscall(SYS_epoll_pwait2, epfd, events, maxevents, timeout, NULL, 0);
    }
    """
    int c_epoll_pwait2 "eploop_pwait2"(
        int epfd, epoll_event *events, int maxevents, const timespec *timeout) nogil


cdef inline int create() noexcept nogil:
    cdef int fd = c_epoll_create1(EPOLL_CLOEXEC)
    return fd if fd >= 0 else -errno


cdef inline int ctl(int epfd, int op, int fd, uint32_t events, uint64_t key) noexcept nogil:
    cdef epoll_event event
    event.events = events
    event.data.u64 = key
    return 0 if c_epoll_ctl(epfd, op, fd, &event) == 0 else -errno


cdef inline int poll(int epfd, epoll_event *events, int room) noexcept nogil:
    """What is ready now; never blocks."""
    cdef int n = c_epoll_wait(epfd, events, room, 0)
    return n if n >= 0 else -errno


cdef inline int wait(int epfd, epoll_event *events, int room, int64_t timeout_ns) noexcept nogil:
    """Block for `timeout_ns` at most, for ever if negative. EINTR is the caller's business."""
    cdef:
        timespec timeout
        int n
    timeout.tv_sec = timeout_ns // 1000000000
    timeout.tv_nsec = timeout_ns % 1000000000
    n = c_epoll_pwait2(epfd, events, room, &timeout if timeout_ns >= 0 else NULL)
    return n if n >= 0 else -errno


cdef inline int wait_ms(int epfd, epoll_event *events, int room, int64_t timeout_ns) noexcept nogil:
    """As `wait` without epoll_pwait2: rounded up to milliseconds, so that nothing is early."""
    cdef:
        int64_t timeout_ms = -1 if timeout_ns < 0 else (timeout_ns + 999999) // 1000000
        int n = c_epoll_wait(epfd, events, room, <int>min(timeout_ms, 86400000))
    return n if n >= 0 else -errno


cdef inline int eventfd() noexcept nogil:
    cdef int fd = c_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    return fd if fd >= 0 else -errno


cdef inline int eventfd_add(int fd) noexcept nogil:
    """Add 1 to the counter, which makes an edge."""
    cdef uint64_t value = 1
    while c_write(fd, &value, sizeof(value)) < 0:
        if errno == EAGAIN:
            # eventfd(2): the counter is at its limit, and a refused write makes no edge.
            c_read(fd, &value, sizeof(value))
            value = 1
        elif errno != EINTR:
            return -errno
    return 0
