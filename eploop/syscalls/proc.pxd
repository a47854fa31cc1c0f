# Child processes by descriptor: pidfd_open(2), pidfd_send_signal(2), waitid(2).

from libc.errno cimport EINTR, EINVAL, errno

cdef extern from *:
    """
    #include <errno.h>
    #include <signal.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    /* By number: C libraries older than the calls (glibc < 2.36) have no wrapper for them. */
    #ifndef SYS_pidfd_open
    #define SYS_pidfd_open 434
    #endif
    #ifndef SYS_pidfd_send_signal
    #define SYS_pidfd_send_signal 424
    #endif
    static inline int eploop_pidfd_open(int pid) {
        return (int)syscall(SYS_pidfd_open, pid, 0);
    }
    static inline int eploop_pidfd_send_signal(int fd, int sig) {
        return (int)syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
    }
    /* 3 is P_PIDFD, which older headers do not name. */
    static inline int eploop_waitid(int by_pidfd, int id, int options, int *pid, int *returncode) {
        siginfo_t info;
        memset(&info, 0, sizeof(info));
        if (waitid(by_pidfd ? (idtype_t)3 : P_PID, (id_t)id, &info, WEXITED | WNOHANG | options))
            return -1;
        *pid = info.si_pid;
        *returncode = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
        return 0;
    }
    """
    int c_pidfd_open "eploop_pidfd_open"(int pid) nogil
    int c_pidfd_send_signal "eploop_pidfd_send_signal"(int fd, int sig) nogil
    int c_waitid "eploop_waitid"(
        bint by_pidfd, int id, int options, int *pid, int *returncode) nogil
    int WNOWAIT


cdef inline int pidfd_open(int pid) noexcept nogil:
    """The descriptor is close-on-exec."""
    cdef int fd = c_pidfd_open(pid)
    return fd if fd >= 0 else -errno


cdef inline int send_signal(int fd, int sig) noexcept nogil:
    return 0 if c_pidfd_send_signal(fd, sig) == 0 else -errno


cdef inline int wait_exit(int fd, int pid, int options, int *returncode) noexcept nogil:
    """1 if the child has ended, with its return code as Python has it; 0 if it runs.

    Args:
        options: 0 to reap the child, WNOWAIT to leave it as it is.
    """
    cdef:
        int ended_pid = 0
        bint by_pidfd = True
    while c_waitid(by_pidfd, fd if by_pidfd else pid, options, &ended_pid, returncode) < 0:
        if errno == EINVAL and by_pidfd:
            by_pidfd = False    # Linux 5.3 has the descriptor, but not this use of it
        elif errno != EINTR:
            return -errno
    return ended_pid != 0
