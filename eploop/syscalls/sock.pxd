# Sockets.

from libc.errno cimport EINTR, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from posix.types cimport off_t

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    struct sockaddr:
        uint16_t sa_family
    struct sockaddr_storage:
        uint16_t ss_family
    struct msghdr:
        void *msg_name
        socklen_t msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
    int AF_INET, AF_INET6, AF_UNIX, SOL_SOCKET, SO_ERROR
    int SOCK_STREAM, SOCK_NONBLOCK, SOCK_CLOEXEC
    int MSG_DONTWAIT, MSG_NOSIGNAL
    int SHUT_WR
    ssize_t c_recv "recv"(int fd, void *buf, size_t n, int flags)
    ssize_t c_send "send"(int fd, const void *buf, size_t n, int flags)
    ssize_t c_sendmsg "sendmsg"(int fd, const msghdr *msg, int flags)
    int c_shutdown "shutdown"(int fd, int how)
    int c_accept4 "accept4"(int fd, sockaddr *addr, socklen_t *addrlen, int flags)
    int c_getsockname "getsockname"(int fd, sockaddr *addr, socklen_t *addrlen)
    int c_getpeername "getpeername"(int fd, sockaddr *addr, socklen_t *addrlen)
    int c_connect "connect"(int fd, const sockaddr *addr, socklen_t addrlen)
    int c_setsockopt "setsockopt"(int fd, int level, int name, const void *value, socklen_t n)
    int c_getsockopt "getsockopt"(int fd, int level, int name, void *value, socklen_t *n)

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t c_sendfile "sendfile"(int out, int file, off_t *offset, size_t n)

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        uint32_t s_addr
    struct in6_addr:
        uint8_t s6_addr[16]
    struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    struct sockaddr_in6:
        uint16_t sin6_family
        uint16_t sin6_port
        uint32_t sin6_flowinfo
        in6_addr sin6_addr
        uint32_t sin6_scope_id
    int IPPROTO_TCP
    uint16_t ntohs(uint16_t value)
    uint32_t ntohl(uint32_t value)

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_NODELAY, TCP_INFO
    struct tcp_info:
        uint32_t tcpi_unacked


cdef inline ssize_t recv(int fd, void *buf, size_t n) noexcept nogil:
    cdef ssize_t r
    while True:
        r = c_recv(fd, buf, n, MSG_DONTWAIT)
        if r >= 0:
            return r
        if errno != EINTR:
            return -errno


cdef inline ssize_t send(int fd, const void *buf, size_t n) noexcept nogil:
    cdef ssize_t r
    while True:
        r = c_send(fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL)
        if r >= 0:
            return r
        if errno != EINTR:
            return -errno


cdef inline ssize_t send_vector(int fd, iovec *parts, size_t count) noexcept nogil:
    """sendmsg(2) of `count` parts, IOV_MAX (1024) at most."""
    cdef:
        ssize_t r
        msghdr msg
    msg = msghdr(NULL, 0, parts, count)
    while True:
        r = c_sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL)
        if r >= 0:
            return r
        if errno != EINTR:
            return -errno


cdef inline ssize_t send_file(int fd, int file, off_t offset, size_t n) noexcept nogil:
    """sendfile(2): the file's own position is not used and not moved."""
    cdef ssize_t r
    while True:
        r = c_sendfile(fd, file, &offset, n)
        if r >= 0:
            return r
        if errno != EINTR:
            return -errno


cdef inline int shutdown_write(int fd) noexcept nogil:
    return 0 if c_shutdown(fd, SHUT_WR) == 0 else -errno


cdef inline int accept(int fd, sockaddr *addr, socklen_t *addrlen) noexcept nogil:
    cdef int r
    while True:
        r = c_accept4(fd, addr, addrlen, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if r >= 0:
            return r
        if errno != EINTR:
            return -errno


cdef inline int connect(int fd, const sockaddr *addr, socklen_t addrlen) noexcept nogil:
    """connect(2): EINTR means under way, as EINPROGRESS does; calling again would be EALREADY."""
    return 0 if c_connect(fd, addr, addrlen) == 0 else -errno


cdef inline int getsockname(int fd, sockaddr *addr, socklen_t *addrlen) noexcept nogil:
    return 0 if c_getsockname(fd, addr, addrlen) == 0 else -errno


cdef inline int getpeername(int fd, sockaddr *addr, socklen_t *addrlen) noexcept nogil:
    return 0 if c_getpeername(fd, addr, addrlen) == 0 else -errno


cdef inline int set_nodelay(int fd) noexcept nogil:
    cdef int on = 1
    if c_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0:
        return 0
    return -errno


cdef inline int pending_error(int fd) noexcept nogil:
    """SO_ERROR, cleared by reading: 0, or the -errno of a failed connect."""
    cdef:
        int error = 0
        socklen_t n = sizeof(error)
    if c_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0:
        return -errno
    return -error


cdef inline int queued_connections(int fd) noexcept nogil:
    """Length of a TCP listener's accept queue.

    tcp(7): on a listening socket `tcpi_unacked` counts connections that wait for accept. Asking
    costs a fifth of an accept4() that finds nothing.
    """
    cdef:
        tcp_info info
        socklen_t n = sizeof(info)
    if c_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0:
        return -errno
    return <int>info.tcpi_unacked


# ---- datagrams and numeric hosts

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recvfrom "recvfrom"(
        int fd, void *buf, size_t n, int flags, sockaddr *addr, socklen_t *addrlen)
    ssize_t c_sendto "sendto"(
        int fd, const void *buf, size_t n, int flags, const sockaddr *addr, socklen_t addrlen)

cdef extern from "<arpa/inet.h>" nogil:
    uint16_t htons(uint16_t value)
    uint32_t htonl(uint32_t value)
    int inet_pton(int family, const char *text, void *packed)    # 1: understood


cdef inline ssize_t recvfrom(int fd, void *buf, size_t n, sockaddr *addr,
                             socklen_t *addrlen) noexcept nogil:
    """Sets `addrlen`, which says how long `addr` may be, to 0 if the sender has no address."""
    cdef:
        ssize_t r
        socklen_t room = addrlen[0]
    while True:
        addrlen[0] = room
        r = c_recvfrom(fd, buf, n, MSG_DONTWAIT, addr, addrlen)
        if r >= 0:
            return r
        if errno != EINTR:
            return -errno


cdef inline ssize_t sendto(int fd, const void *buf, size_t n, const sockaddr *addr,
                           socklen_t addrlen) noexcept nogil:
    cdef ssize_t r
    while True:
        r = c_sendto(fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL, addr, addrlen)
        if r >= 0:
            return r
        if errno != EINTR:
            return -errno
